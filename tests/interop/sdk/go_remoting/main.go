// Command sdk is the official Go client of the remoting protocol: it sends messages and consumes them, signed by a user
// and over TLS. The client verifies no certificate of a server.
//
// Arguments: address of the name server, topic, number of messages, access key, secret key. It prints SENT and GOT with
// the body of each message, then DONE; or REFUSED with the error that ends it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	servers, topic := primitive.NewPassthroughResolver([]string{os.Args[1]}), os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	user := primitive.Credentials{AccessKey: os.Args[4], SecretKey: os.Args[5]}
	check(send(servers, user, topic, count))
	check(receive(servers, user, topic, count))
	fmt.Println("DONE")
}

func check(err error) {
	if err != nil {
		fmt.Println("REFUSED", err)
		os.Exit(1)
	}
}

func send(servers primitive.NsResolver, user primitive.Credentials, topic string, count int) error {
	client, err := rocketmq.NewProducer(
		producer.WithNsResolver(servers),
		producer.WithCredentials(user),
		producer.WithTls(true),
	)
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	for n := range count {
		body := fmt.Sprintf("body-%d", n)
		if _, err := client.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body))); err != nil {
			return err
		}
		fmt.Println("SENT", body)
	}
	return nil
}

func receive(servers primitive.NsResolver, user primitive.Credentials, topic string, count int) error {
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(servers),
		consumer.WithCredentials(user),
		consumer.WithTls(true),
		consumer.WithGroupName("CG_Go"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	bodies := make(chan string)
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			bodies <- string(message.Body)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := client.Subscribe(topic, consumer.MessageSelector{}, take); err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	late := time.After(time.Minute)
	for range count {
		select {
		case body := <-bodies:
			fmt.Println("GOT", body)
		case <-late:
			return errors.New("a message is missing after a minute")
		}
	}
	return nil
}
