package journal

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"evenkeel/internal/badinput"
	"evenkeel/internal/broker"
)

// foreign is a server of its own; one that has just deleted a stream may not make it anew at once.
func foreign(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	n, err := broker.Start(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Stop(n) })
	conn, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	return n.ClientURL(), js
}

// A stream of the journal's name that would not keep what it is given is refused with the reason, and left as it is; what other programs wrote
// under the journal's subjects is a job that cannot be read, and no other's concern.
func TestForeignStream(t *testing.T) {
	sound := jetstream.StreamConfig{Name: stream, Subjects: []string{prefix + ">"}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew}
	for want, spoil := range map[string]func(*jetstream.StreamConfig){
		"subjects":      func(c *jetstream.StreamConfig) { c.Subjects = []string{"another.>"} },
		"more subjects": func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "another.>") },
		"max_age":       func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs":      func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
		"per_subject":   func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1000 },
		"retention":     func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"discards old":  func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"memory":        func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
	} {
		c := sound
		c.Subjects = append([]string(nil), sound.Subjects...)
		spoil(&c)
		url, js := foreign(t)
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		begun := time.Now()
		_, err := Open(t.Context(), Options{URL: url})
		if want == "more subjects" {
			want = "subjects"
		}
		if !badinput.Is(err) || !strings.Contains(err.Error(), want) || time.Since(begun) > patience/2 {
			t.Errorf("%s: %v after %v", want, err, time.Since(begun))
		}
	}
	url, js := foreign(t)
	if _, err := js.CreateStream(t.Context(), sound); err != nil {
		t.Fatal(err)
	}
	j := open(t, Options{URL: url})
	if _, err := js.Publish(t.Context(), prefix+"foreign", []byte("\x00 what is this?")); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(t.Context(), "own", 0, []byte("1")); err != nil {
		t.Error(err)
	}
}
