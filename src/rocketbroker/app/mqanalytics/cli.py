"""The command ``mqanalytics``.

mqanalytics JOB STORE... [OPTION]...

Exit code 0: done; 1: a store or Spark could not be used, the reason is on stderr; 2: wrong usage; 3: an audit found
errors, or a comparison differences; 130: interrupted.
"""

from rocketbroker.app.command_line import lazy_app
from rocketbroker.app.mqanalytics.sub_commands import SUB_COMMANDS, load

app = lazy_app(SUB_COMMANDS, load, "Analyse the stores of RocketMQ brokers, even while the brokers run.")


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqanalytics")


if __name__ == "__main__":
    main()
