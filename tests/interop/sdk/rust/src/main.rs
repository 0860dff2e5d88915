//! The official Rust SDK under a test's control: commands on stdin, events on stdout, both one JSON object a line, as
//! tests/support/sdk_process.py lists them. The argument is the address of the proxy; transport is plaintext, the only
//! one that the SDK has.
//!
//! The SDK has no push consumer: `push` is a loop around a simple one, which leaves a failed message and those after it
//! to their invisible time. It has neither `change` nor `recall`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Map, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

const PUSH_INVISIBLE: Duration = Duration::from_secs(10);
/// The SDK ends a receive at once after this time, so that it is above the longest time that the server waits.
const AWAIT: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_millis(500);

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    expression: FilterExpression,
}

/// Clients and messages that were received, by their names.
#[derive(Default)]
struct State {
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    consumers: Mutex<HashMap<String, Arc<Consumer>>>,
    received: Mutex<HashMap<(String, String), Arc<MessageView>>>,
}

type Done = Result<Value, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() {
    std::fs::create_dir_all("logs").expect("a folder for the SDK's log");
    emit("ready", json!({"version": version()}));
    let state = Arc::new(State::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.expect("stdin") {
        let command: Value = serde_json::from_str(&line).expect("a command");
        let state = state.clone();
        tokio::spawn(async move {
            let (event, mut fields) = match answer(&state, &command).await {
                Ok(done) => ("done", done),
                Err(error) => ("failed", json!({"error": error.to_string()})),
            };
            fields["n"] = command["n"].clone();
            emit(event, fields);
        });
    }
}

/// Returns the version of the SDK that cargo has chosen.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let (_, package) = lock.split_once("name = \"rocketmq\"\nversion = \"").expect("the SDK");
    package.split_once('"').expect("its version").0
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() as u64
}

fn emit(event: &str, mut fields: Value) {
    fields["event"] = event.into();
    fields["at_ms"] = now_ms().into();
    println!("{fields}");
}

fn describe(name: &str, message: &MessageView) -> Value {
    json!({
        "name": name,
        "id": message.message_id(),
        "topic": message.topic(),
        "body": String::from_utf8_lossy(message.body()),
        "tag": message.tag(),
        "keys": message.keys(),
        "message_group": message.message_group(),
        "properties": message.properties(),
        "attempt": message.delivery_attempt(),
    })
}

fn text(command: &Value, field: &str) -> String {
    command[field].as_str().unwrap_or_default().to_string()
}

async fn answer(state: &Arc<State>, command: &Value) -> Done {
    match command["do"].as_str().unwrap_or_default() {
        "producer" => start_producer(state, command).await,
        "simple" => start_consumer(state, command).await,
        "push" => {
            start_consumer(state, command).await?;
            let (state, name) = (state.clone(), text(command, "name"));
            tokio::spawn(async move { push(&state, &name).await });
            Ok(json!({}))
        }
        "send" => send(state, command).await,
        "receive" => receive(state, command).await,
        "ack" => ack(state, command).await,
        verb => Err(format!("the SDK has no {verb}").into()),
    }
}

fn client_option() -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(std::env::args().nth(1).expect("the address of the proxy"));
    option
}

async fn start_producer(state: &State, command: &Value) -> Done {
    let mut option = ProducerOption::default();
    option.set_logging_format(LoggingFormat::Json); // into a file
    option.set_topics(vec![text(command, "topic")]);
    let name = text(command, "name");
    let checked = name.clone();
    let check = Box::new(move |_: String, message: MessageView| {
        emit("check", describe(&checked, &message));
        match message.properties().get("check").map(String::as_str) {
            Some("COMMIT") => TransactionResolution::COMMIT,
            Some("ROLLBACK") => TransactionResolution::ROLLBACK,
            _ => TransactionResolution::UNKNOWN,
        }
    });
    let mut producer = Producer::new_transaction_producer(option, client_option(), check)?;
    producer.start().await?;
    state.producers.lock().unwrap().insert(name, Arc::new(producer));
    Ok(json!({}))
}

async fn start_consumer(state: &State, command: &Value) -> Done {
    let (topic, mut option, mut connection) = (text(command, "topic"), SimpleConsumerOption::default(), client_option());
    option.set_logging_format(LoggingFormat::Json);
    option.set_topics(vec![topic.clone()]);
    option.set_consumer_group(text(command, "group"));
    connection.set_long_polling_timeout(AWAIT);
    let mut client = SimpleConsumer::new(option, connection)?;
    client.start().await?;
    let expression = match command["sql"].as_str() {
        Some(sql) => FilterExpression::new(FilterType::Sql, sql),
        None => FilterExpression::new(FilterType::Tag, text(command, "tag")),
    };
    let consumer = Arc::new(Consumer { client, topic, expression });
    state.consumers.lock().unwrap().insert(text(command, "name"), consumer);
    Ok(json!({}))
}

async fn send(state: &State, command: &Value) -> Done {
    let producer = state.producers.lock().unwrap()[&text(command, "name")].clone();
    let mut builder =
        MessageBuilder::builder().set_topic(text(command, "topic")).set_body(text(command, "body").into_bytes());
    if let Some(tag) = command["tag"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(keys) = command["keys"].as_array() {
        builder = builder.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if let Some(message_group) = command["message_group"].as_str() {
        builder = builder.set_message_group(message_group);
    }
    if let Some(delay_ms) = command["delay_ms"].as_u64() {
        builder = builder.set_delivery_timestamp(((now_ms() + delay_ms) / 1000) as i64);
    }
    let properties = command["properties"].as_object().unwrap_or(&Map::new()).clone();
    builder = builder.set_properties(
        properties.into_iter().map(|(key, value)| (key, value.as_str().unwrap_or_default().to_string())).collect(),
    );
    let Some(resolution) = command["transaction"].as_str() else {
        let receipt = producer.send(builder.build()?).await?;
        return Ok(json!({"id": receipt.message_id()}));
    };
    let transaction = producer.send_transaction_message(builder.enable_transaction().build()?).await?;
    let id = transaction.message_id().to_string();
    match resolution {
        "COMMIT" => transaction.commit().await?,
        "ROLLBACK" => transaction.rollback().await?,
        _ => {}
    }
    Ok(json!({"id": id}))
}

impl Consumer {
    async fn receive(&self, max: i32, invisible: Duration) -> Result<Vec<MessageView>, ClientError> {
        self.client.receive_with(&self.topic, &self.expression, max, invisible).await
    }
}

fn consumer(state: &State, name: &str) -> Arc<Consumer> {
    state.consumers.lock().unwrap()[name].clone()
}

async fn receive(state: &State, command: &Value) -> Done {
    let name = text(command, "name");
    let max = command["max"].as_i64().unwrap_or(1) as i32;
    let invisible = Duration::from_millis(command["invisible_ms"].as_u64().unwrap_or_default());
    let messages = consumer(state, &name).receive(max, invisible).await?;
    let count = messages.len();
    for message in messages {
        emit("message", describe(&name, &message));
        let key = (name.clone(), message.message_id().to_string());
        state.received.lock().unwrap().insert(key, Arc::new(message));
    }
    Ok(json!({"count": count}))
}

async fn ack(state: &State, command: &Value) -> Done {
    let key = (text(command, "name"), text(command, "id"));
    let message = state.received.lock().unwrap()[&key].clone();
    consumer(state, &key.0).client.ack(&*message).await?;
    Ok(json!({}))
}

/// Consumes for ever; fails as often as the property "failures" of a message says.
async fn push(state: &State, name: &str) {
    let consumer = consumer(state, name);
    let mut deliveries: HashMap<String, i64> = HashMap::new();
    loop {
        let Ok(messages) = consumer.receive(16, PUSH_INVISIBLE).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        for message in messages {
            emit("message", describe(name, &message));
            let delivered = deliveries.entry(message.message_id().to_string()).or_default();
            *delivered += 1;
            let failures = message.properties().get("failures").and_then(|number| number.parse().ok()).unwrap_or(0);
            if *delivered <= failures {
                break;
            }
            if let Err(error) = consumer.client.ack(&message).await {
                eprintln!("not acknowledged: {error}");
            }
        }
    }
}
