// Append every public event of HBox to FILE, each once: go run . FILE. Settings: ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func id(event []byte) string {
	var head struct{ ID string }
	_ = json.Unmarshal(event, &head)
	return head.ID
}

func main() {
	file := must(os.OpenFile(os.Args[1], os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600))
	seen := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		seen[id(lines.Bytes())] = true
	}
	client := must(nats.Connect(os.Getenv("NATS_URL"), must(nats.NkeyOptionFromSeed(os.Getenv("NATS_NKEY"))),
		nats.CustomInboxPrefix("_INBOX_"+os.Getenv("EVENTS_READER")), nats.MaxReconnects(-1)))
	config := jetstream.ConsumerConfig{Durable: os.Getenv("EVENTS_CONSUMER"), FilterSubject: os.Getenv("EVENTS_FILTER"),
		AckWait: 5 * time.Second, MaxAckPending: 1}
	consumer := must(must(jetstream.New(client)).CreateOrUpdateConsumer(context.Background(), "HBOX_CLOUDEVENTS", config))
	for messages := must(consumer.Messages()); ; {
		message := must(messages.Next())
		if key := id(message.Data()); !seen[key] {
			must(file.Write(append(message.Data(), '\n')))
			must(0, file.Sync()) // first keep the event, then acknowledge it: a crash in between repeats it
			seen[key] = true
		}
		must(0, message.Ack())
	}
}
