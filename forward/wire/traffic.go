package wire

import (
	"net"
	"sync/atomic"
)

// Traffic counts the bytes of connections, with all that NATS and TLS add to frames.
type Traffic struct{ sent, received atomic.Int64 }

// Sent are the bytes written so far.
func (t *Traffic) Sent() int64 { return t.sent.Load() }

// Received are the bytes read so far.
func (t *Traffic) Received() int64 { return t.received.Load() }

// Dial implements nats.CustomDialer.
func (t *Traffic) Dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, connectFor)
	if err != nil {
		return nil, err
	}
	return &countedConn{c, t}, nil
}

type countedConn struct {
	net.Conn
	traffic *Traffic
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n))
	return n, err
}
