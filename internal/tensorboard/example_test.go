package tensorboard_test

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/internal/tensorboard"
)

func Example() {
	dir, err := os.MkdirTemp("", "events")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w, err := tensorboard.Create(dir, time.Now())
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Scalars(time.Now(), 7, tensorboard.Scalar{Tag: "loss", Value: 0.5}); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	content, err := os.ReadFile(w.Name()) // dir/events.out.tfevents.*
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bytes.Contains(content, []byte("brain.Event:2")), bytes.Contains(content, []byte("loss")))
	// Output:
	// true true
}
