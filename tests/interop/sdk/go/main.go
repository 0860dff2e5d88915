// Command sdk is the official Go SDK under a test's control: commands on stdin, events on stdout, both one JSON object
// a line, as tests/support/sdk_process.py lists them. The argument is the address of the proxy; transport is the SDK's
// default, TLS.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const sdk = "github.com/apache/rocketmq-clients/golang/v5"

type command struct {
	Do, Name, Group, Topic, Body, Handle, ID, Tag, SQL, Transaction string

	N, Max       int
	Keys         []string
	Properties   map[string]string
	MessageGroup string `json:"message_group"`
	AwaitMs      int    `json:"await_ms"`
	InvisibleMs  int    `json:"invisible_ms"`
	DelayMs      int    `json:"delay_ms"`
}

type fields map[string]any

// key names a message of one client.
type key struct{ client, message string }

var (
	output     sync.Mutex
	state      sync.Mutex // guards the maps below
	producers  = map[string]rmq.Producer{}
	pushers    = map[string]rmq.PushConsumer{}
	simples    = map[string]rmq.SimpleConsumer{}
	received   = map[key]*rmq.MessageView{}
	deliveries = map[key]int{}
)

var resolutions = map[string]rmq.TransactionResolution{"COMMIT": rmq.COMMIT, "ROLLBACK": rmq.ROLLBACK}

var verbs = map[string]func(command) (fields, error){
	"producer": startProducer, "push": startPush, "simple": startSimple, "send": send, "recall": recall,
	"receive": receive, "ack": ack, "change": change, "stop": stop,
}

func main() {
	emit("ready", fields{"version": version()})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var given command
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		go answer(given)
	}
}

func version() string {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == sdk {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

func answer(given command) {
	done, err := verbs[given.Do](given)
	if err != nil {
		emit("failed", fields{"n": given.N, "error": err.Error()})
		return
	}
	if done == nil {
		done = fields{}
	}
	done["n"] = given.N
	emit("done", done)
}

func emit(event string, described fields) {
	described["event"] = event
	described["at_ms"] = time.Now().UnixMilli()
	line, err := json.Marshal(described)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

func describe(name string, message *rmq.MessageView) fields {
	return fields{
		"name":          name,
		"id":            message.GetMessageId(),
		"topic":         message.GetTopic(),
		"body":          string(message.GetBody()),
		"tag":           message.GetTag(),
		"keys":          append([]string{}, message.GetKeys()...),
		"message_group": message.GetMessageGroup(),
		"properties":    message.GetProperties(),
		"attempt":       message.GetDeliveryAttempt(),
	}
}

func config(given command) *rmq.Config {
	return &rmq.Config{
		Endpoint: os.Args[1], ConsumerGroup: given.Group, Credentials: &credentials.SessionCredentials{
			AccessKey: os.Getenv("SDK_ACCESS_KEY"), AccessSecret: os.Getenv("SDK_SECRET_KEY"),
		},
	}
}

func subscription(given command) map[string]*rmq.FilterExpression {
	if given.SQL != "" {
		return map[string]*rmq.FilterExpression{given.Topic: rmq.NewFilterExpressionWithType(given.SQL, rmq.SQL92)}
	}
	return map[string]*rmq.FilterExpression{given.Topic: rmq.NewFilterExpression(given.Tag)}
}

// consume fails as often as the property "failures" of a message says.
func consume(name string, message *rmq.MessageView) rmq.ConsumerResult {
	emit("message", describe(name, message))
	failures, _ := strconv.Atoi(message.GetProperties()["failures"])
	state.Lock()
	defer state.Unlock()
	each := key{name, message.GetMessageId()}
	deliveries[each]++
	if deliveries[each] <= failures {
		return rmq.FAILURE
	}
	return rmq.SUCCESS
}

// check resolves a transaction as the property "check" of its message says.
func check(name string, message *rmq.MessageView) rmq.TransactionResolution {
	emit("check", describe(name, message))
	return resolutions[message.GetProperties()["check"]]
}

// started keeps a client that has started under its name.
func started[Client interface{ Start() error }](clients map[string]Client, name string, client Client, err error) error {
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	state.Lock()
	defer state.Unlock()
	clients[name] = client
	return nil
}

func named[Name comparable, Value any](values map[Name]Value, name Name) Value {
	state.Lock()
	defer state.Unlock()
	return values[name]
}

func startProducer(given command) (fields, error) {
	checker := &rmq.TransactionChecker{Check: func(message *rmq.MessageView) rmq.TransactionResolution {
		return check(given.Name, message)
	}}
	client, err := rmq.NewProducer(config(given), rmq.WithTopics(given.Topic), rmq.WithTransactionChecker(checker))
	return nil, started(producers, given.Name, client, err)
}

func startPush(given command) (fields, error) {
	listener := &rmq.FuncMessageListener{Consume: func(message *rmq.MessageView) rmq.ConsumerResult {
		return consume(given.Name, message)
	}}
	client, err := rmq.NewPushConsumer(
		config(given),
		rmq.WithPushSubscriptionExpressions(subscription(given)),
		rmq.WithPushMessageListener(listener),
	)
	return nil, started(pushers, given.Name, client, err)
}

func startSimple(given command) (fields, error) {
	client, err := rmq.NewSimpleConsumer(
		config(given),
		rmq.WithSimpleSubscriptionExpressions(subscription(given)),
		rmq.WithSimpleAwaitDuration(milliseconds(given.AwaitMs)),
	)
	return nil, started(simples, given.Name, client, err)
}

func send(given command) (fields, error) {
	message := &rmq.Message{Topic: given.Topic, Body: []byte(given.Body)}
	if given.Tag != "" {
		message.SetTag(given.Tag)
	}
	message.SetKeys(given.Keys...)
	if given.MessageGroup != "" {
		message.SetMessageGroup(given.MessageGroup)
	}
	if given.DelayMs != 0 {
		message.SetDelayTimestamp(time.Now().Add(milliseconds(given.DelayMs)))
	}
	for name, value := range given.Properties {
		message.AddProperty(name, value)
	}
	producer := named(producers, given.Name)
	if given.Transaction == "" {
		return receipt(producer.Send(context.Background(), message))
	}
	transaction := producer.BeginTransaction()
	sent, err := receipt(producer.SendWithTransaction(context.Background(), message, transaction))
	if err != nil {
		return nil, err
	}
	switch given.Transaction {
	case "COMMIT":
		return sent, transaction.Commit()
	case "ROLLBACK":
		return sent, transaction.RollBack()
	default: // UNKNOWN is left to the check
		return sent, nil
	}
}

func receipt(receipts []*rmq.SendReceipt, err error) (fields, error) {
	if err != nil {
		return nil, err
	}
	return fields{"id": receipts[0].MessageID, "handle": receipts[0].RecallHandle}, nil
}

func recall(given command) (fields, error) {
	id, err := named(producers, given.Name).Recall(context.Background(), given.Topic, given.Handle)
	return fields{"id": id}, err
}

func receive(given command) (fields, error) {
	consumer := named(simples, given.Name)
	messages, err := consumer.Receive(context.Background(), int32(given.Max), milliseconds(given.InvisibleMs))
	var status *rmq.ErrRpcStatus
	if errors.As(err, &status) && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return fields{"count": 0}, nil
	}
	for _, message := range messages {
		state.Lock()
		received[key{given.Name, message.GetMessageId()}] = message
		state.Unlock()
		emit("message", describe(given.Name, message))
	}
	return fields{"count": len(messages)}, err
}

func ack(given command) (fields, error) {
	message := named(received, key{given.Name, given.ID})
	return nil, named(simples, given.Name).Ack(context.Background(), message)
}

func change(given command) (fields, error) {
	message := named(received, key{given.Name, given.ID})
	return nil, named(simples, given.Name).ChangeInvisibleDuration(message, milliseconds(given.InvisibleMs))
}

func stop(given command) (fields, error) {
	if producer := named(producers, given.Name); producer != nil {
		return nil, producer.GracefulStop()
	}
	if push := named(pushers, given.Name); push != nil {
		return nil, push.GracefulStop()
	}
	return nil, named(simples, given.Name).GracefulStop()
}

func milliseconds(number int) time.Duration {
	return time.Duration(number) * time.Millisecond
}
