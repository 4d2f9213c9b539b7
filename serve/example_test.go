package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"

	"evenkeel/serve"
)

// A service on a free port of this machine, and a job that starts, by hand.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	s, err := serve.New(ctx, serve.Config{})
	if err != nil {
		log.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()

	start := `{"id": "0123456789abcdef", "global_batch": 64, "ranks": [{"name": "host-a/0"}, {"name": "host-b/0"}]}`
	answer, err := http.Post("http://"+l.Addr().String()+"/v1/jobs/mine/generations", "application/json", strings.NewReader(start)) //nolint:noctx // an example
	if err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	_ = answer.Body.Close()
	var got struct {
		Generation int
		Sizes      struct{ Nodes []struct{ Share int } }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status, got.Generation, got.Sizes.Nodes)
	http.DefaultClient.CloseIdleConnections()
	stop()
	fmt.Println(<-ended)
	// Output:
	// 201 Created 1 [{32} {32}]
	// <nil>
}
