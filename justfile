# The verbs of a working day; `just check` is what CI runs.

python := ".venv/bin/python"
export PYTHONPATH := "src"

# list the verbs
default:
    @just --list

# everything CI checks: format, lint, types, import contracts, docs, tests
check *args:
    bin/test {{args}}

# the tests alone, e.g. `just test tests/unit/codec -k batch`
test *args:
    {{python}} -m pytest {{args}}

# put files into the project's format and apply the safe fixes
format:
    {{python}} -m ruff format .
    {{python}} -m ruff check --fix .

# format and lint, without changing anything
lint:
    {{python}} -m ruff format --check .
    {{python}} -m ruff check .

# strict types over src and bench, bodies over tests
types:
    {{python}} -m mypy --strict src bench tests

# who may import whom
arch:
    .venv/bin/lint-imports

# the manual, with every warning an error
docs:
    {{python}} -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Apache RocketMQ and ours under the same load, e.g. `just bench --only sync64` (needs a JDK and Maven; 25 minutes)
bench *args:
    bench/run side_by_side {{args}}

# microseconds of a send by step
profile *args:
    bench/run profile_send {{args}}

# resolve the pinned requirement files anew (needs uv)
lock *args:
    bin/_lock {{args}}
