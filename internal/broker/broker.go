// Package broker starts NATS servers within the process.
//
//	s, err := broker.Start(&server.Options{StoreDir: dir, JetStream: true}, 10*time.Second)
//	defer broker.Stop(s)
package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrSlow is returned where a server does not come up in time.
var ErrSlow = errors.New("broker: the server does not come up")

// Start starts a server that neither logs nor handles signals, and waits until it takes connections.
func Start(o *server.Options, patience time.Duration) (*server.Server, error) {
	o.NoLog, o.NoSigs = true, true
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		Stop(s)
		return nil, ErrSlow
	}
	return s, nil
}

// Stop ends a server and waits until it has ended.
func Stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}
