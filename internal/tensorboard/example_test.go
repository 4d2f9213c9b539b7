package tensorboard_test

import (
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

	file, err := os.Open(w.Name()) // dir/events.out.tfevents.*
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	events, err := tensorboard.Read(file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(events[0].Version)
	fmt.Println(events[1].Step, events[1].Scalars)
	// Output:
	// brain.Event:2
	// 7 [{loss 0.5}]
}
