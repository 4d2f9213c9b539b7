package journal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"evenkeel/serve/journal"
)

// Two writers of one job: who does not know the newest message cannot write.
func Example() {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	j, err := journal.Open(ctx, journal.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer j.Close()
	first, err := j.Append(ctx, "job", 0, []byte("created"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := j.Append(ctx, "job", first, []byte("round 0")); err != nil {
		log.Fatal(err)
	}
	_, err = j.Append(ctx, "job", first, []byte("round 0, by another"))
	fmt.Println(errors.Is(err, journal.ErrStale))
	_, err = j.Read(ctx, "job", 0, func(message []byte) error {
		fmt.Printf("%s\n", message)
		return nil
	})
	fmt.Println(err)
	// Output:
	// true
	// created
	// round 0
	// <nil>
}
