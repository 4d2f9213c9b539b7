package wire_test

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/forward/wire"
)

// A run on an embedded server, which one processor creates and another joins.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// what all processors must know
	// message 2, of rank 3: a frame of 16 B.
}

func run(ctx context.Context) error {
	server, err := wire.Serve(wire.ServerOptions{}) // on loopback, with a token of its own
	if err != nil {
		return err
	}
	defer server.Close()
	conn, err := wire.Connect(server.URL(), wire.Options{Rank: -1, Token: server.Token()})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := wire.Create(ctx, conn, "run", []byte("what all processors must know")); err != nil { // once
		return err
	}
	joined, err := wire.Open(ctx, conn, "run") // every processor
	if err != nil {
		return err
	}
	fmt.Println(string(joined.Header))
	bus, err := joined.Join(ctx, 3, 0) // what forward.Processor takes
	if err != nil {
		return err
	}
	defer bus.Close()
	if err := bus.Publish(ctx, []byte("a frame of 16 B.")); err != nil {
		return err
	}
	m, err := bus.Next(ctx)
	fmt.Printf("message %d, of rank %d: %s\n", m.Position, m.Rank, m.Frame)
	return err
}

// What is wrong with an address, a name or a run is an error of its own.
func ExampleConnect() {
	for _, address := range []string{"no address", "nats://192.0.2.1:4222"} {
		_, err := wire.Connect(address, wire.Options{})
		fmt.Println(errors.Is(err, wire.ErrURL), errors.Is(err, wire.ErrOpen))
	}
	server, err := wire.Serve(wire.ServerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	conn, err := wire.Connect(server.URL(), wire.Options{Rank: -1, Token: server.Token()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	for _, name := range []string{"no name!", "nothing"} {
		_, err := wire.Open(context.Background(), conn, name)
		switch {
		case errors.Is(err, wire.ErrName), errors.Is(err, wire.ErrNoRun):
			fmt.Println(err)
		case errors.Is(err, wire.ErrGap):
			fmt.Println("too far behind: join again")
		case errors.Is(err, wire.ErrLost):
			fmt.Println("the server came back without its files: begin anew, from a log")
		}
	}
	// Output:
	// true false
	// false true
	// wire: a run's name has letters, digits, - and _, at most 64: "no name!"
	// wire: no such run: nothing
}
