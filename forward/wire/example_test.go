package wire_test

import (
	"context"
	"fmt"

	"github.com/evenkeel/evenkeel/forward/wire"
)

// A run on an embedded server, which one processor creates and another joins.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// what all processors must know
	// a frame of 16 B.
}

func run(ctx context.Context) error {
	server, err := wire.Serve(wire.ServerOptions{}) // on loopback, with a token of its own
	if err != nil {
		return err
	}
	defer server.Close()
	conn, err := wire.Connect(server.URL(), wire.Options{Token: server.Token()})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := wire.Create(ctx, conn, "run", []byte("what all processors must know")); err != nil { // once
		return err
	}
	joined, err := wire.Join(ctx, conn, "run") // every processor
	if err != nil {
		return err
	}
	defer joined.Bus.Close()
	fmt.Println(string(joined.Header))
	if err := joined.Bus.Publish(ctx, []byte("a frame of 16 B.")); err != nil {
		return err
	}
	for { // joined.Bus is what forward.Processor takes; nothing, of length 0, is to be passed over
		frame, err := joined.Bus.Next(ctx)
		if err != nil || len(frame) > 0 {
			fmt.Println(string(frame))
			return err
		}
	}
}
