"""Bodies of messages as values: JSON, text, Avro or Protobuf."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's conventional name
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from rocketbroker.analytics.columns.message_schema import DECOMPRESSED_BODY
from rocketbroker.common.errors import ConfigError

#: Column of the values.
VALUE: Final = "value"
FORMS: Final = ("json", "text", "avro", "protobuf")
MODES: Final = ("PERMISSIVE", "FAILFAST")
# Columns by which an error names a message, as far as the frame has them.
_IDENTITY: Final = ("broker", "topic", "queue_id", "queue_offset")
# Field in which Spark keeps a text that does not fit the schema.
_UNFIT: Final = "_unfit_body"
# Spark's condition if the jar of Avro is missing.
_NOT_LOADED: Final = "_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE"


def from_body(
    frame: DataFrame,
    form: str,
    schema: str | StructType | None = None,
    *,
    column: str = DECOMPRESSED_BODY,
    mode: str = "PERMISSIVE",
    **options: str,
) -> DataFrame:
    """Return ``frame`` with one more column ``value``, parsed from each body.

    A body that does not fit has a null value in the mode PERMISSIVE: ``value IS NULL`` selects such messages. In the
    mode FAILFAST it ends the query, with an error that names the message.

    Args:
        frame: messages, of a store or a stream.
        form: ``json``, ``text`` (UTF-8), ``avro``, which needs a jar that PySpark lacks, or ``protobuf``, which needs
            the package protobuf at driver and executors.
        schema: for JSON a struct as DDL or StructType, for Avro a schema in JSON, for Protobuf the message's name, for
            text nothing.
        column: binary column of the bodies, none of them compressed.
        mode: PERMISSIVE or FAILFAST.
        options: those of Spark's ``from_json`` and ``from_avro``; for Protobuf ``descFilePath``, the descriptor file.

    Raises:
        ConfigError: an argument or a column is wrong, or the jar or package is missing.
    """
    if form not in FORMS:
        raise ConfigError(f"from_body: form {form!r} is unknown; use one of {', '.join(FORMS)}")
    if mode not in MODES:
        raise ConfigError(f"from_body: mode {mode!r} is unknown; use {' or '.join(MODES)}")
    _check_columns(frame, column)
    if (schema is None) != (form == "text"):
        raise ConfigError(f"from_body: {form} {'needs a' if schema is None else 'takes no'} schema")
    try:
        value = _value(form, schema, F.col(column), options)
        if mode == "FAILFAST":
            value = F.coalesce(value, F.raise_error(_complaint(frame, form, column)))
        return frame.withColumn(VALUE, value)
    except AnalysisException as error:
        if not (error.getCondition() or "").endswith(_NOT_LOADED):
            raise
        raise ConfigError(
            f"this Spark session lacks the jar for {form}: start it with --packages "
            f"org.apache.spark:spark-{form}_2.13:{frame.sparkSession.version} (spark.jars.packages)"
        ) from error


def _check_columns(frame: DataFrame, column: str) -> None:
    if VALUE in frame.columns:
        raise ConfigError(f"from_body: the frame has a column {VALUE} already; rename it")
    if column not in frame.columns:
        where = (
            f"name it among the columns to read, as in messages(spark, stores, ['topic', '{column}']), since a stored "
            "body may be compressed; or name another column (column='body') if none of its bodies is"
            if column == DECOMPRESSED_BODY
            else f"its columns are {', '.join(frame.columns)}"
        )
        raise ConfigError(f"from_body: the frame has no column {column}; {where}")
    kind = frame.schema[column].dataType
    if not isinstance(kind, BinaryType):
        raise ConfigError(f"from_body: the column {column} is {kind.simpleString()}; bodies are binary")


def _value(form: str, schema: str | StructType | None, body: Column, options: Mapping[str, str]) -> Column:
    """Return the value of ``body``, null if it does not fit."""
    text = F.try_validate_utf8(body.cast("string"))
    if form == "text":
        return text
    if form == "json":
        return _json(text, _struct(schema), options)
    if not isinstance(schema, str):
        raise ConfigError(f"from_body: the schema of {form} is a text, not {type(schema).__name__}")
    return _avro(body, schema, options) if form == "avro" else _protobuf(body, schema, **options)


def _struct(schema: str | StructType | None) -> StructType:
    found = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(found, StructType):
        raise ConfigError(f"from_body: the schema of json is {schema!r}; give a struct, such as 'id int, name string'")
    return found


def _json(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    # Of a text that fits in part, Spark returns the fields that fit, and notes the text.
    noted = StructType([*schema, StructField(_UNFIT, StringType())])
    found = F.from_json(text, noted, {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNFIT})
    return _once(found, lambda value: F.when(value[_UNFIT].isNull(), value.dropFields(_UNFIT)))


def _avro(body: Column, schema: str, options: Mapping[str, str]) -> Column:
    # Spark returns a record of nulls for a body that does not fit. A record around it adds no bytes to the encoding;
    # the one within is null then.
    given = {name: _wrapped(text) if name == "avroSchema" else text for name, text in options.items()}
    return from_avro(body, _wrapped(schema), {**given, "mode": "PERMISSIVE"})[VALUE]


def _wrapped(schema: str) -> str:
    try:
        inner = json.loads(schema)
    except ValueError as error:
        raise ConfigError(f"from_body: the schema of avro is no JSON: {error}") from error
    return json.dumps({"type": "record", "name": "_Body", "fields": [{"name": VALUE, "type": inner}]})


def _protobuf(body: Column, message: str, descFilePath: str = "", **others: str) -> Column:  # noqa: N803 - Spark's
    if not descFilePath or others:
        what = f"has no option {min(others)}" if others else "needs the option descFilePath"
        raise ConfigError(
            f"from_body: protobuf {what}; give descFilePath, a file that protoc --include_imports "
            "--descriptor_set_out=FILE makes"
        )
    try:
        from rocketbroker.analytics.spark.protobuf_bodies import parse_protobuf
    except ImportError as error:
        raise ConfigError(
            f"from_body: protobuf needs the package protobuf at driver and executors: {error}; install it"
        ) from error
    return parse_protobuf(body, message, descFilePath)


def _once(parsed: Column, change: Callable[[Column], Column]) -> Column:
    """Return ``change`` of a value; as a plain expression, it would parse a body once for each field."""
    return F.transform(F.array(parsed), change)[0]


def _complaint(frame: DataFrame, form: str, column: str) -> Column:
    """Return the error text for a body that does not fit."""
    named = [F.concat(F.lit(f"{name} "), F.col(name)) for name in _IDENTITY if name in frame.columns]
    return F.concat(
        F.lit(column),
        F.concat(F.lit(" of "), F.concat_ws(", ", *named)) if named else F.lit(""),
        F.when(F.col(column).isNull(), " cannot be decompressed").otherwise(f" is not {form} of the given schema"),
        F.lit("; mode PERMISSIVE gives a null value instead"),
    )
