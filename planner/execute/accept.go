package execute

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// accept takes connections until the listener is closed: of clients, and of the next stage for data.
func (s *Server) accept(ctx context.Context) {
	room := make(chan struct{}, 2*MaxStages) // for so many handshakes at a time
	for {
		room <- struct{}{}
		conn, err := s.Listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				s.end(failBody{Text: err.Error()}, err)
			}
			return
		}
		s.all.Go(func() {
			defer func() { <-room }()
			if err := s.admit(ctx, conn); err != nil && ctx.Err() == nil {
				s.say("%v", err)
			}
		})
	}
}

// admit shakes hands and looks at who it is.
func (s *Server) admit(ctx context.Context, conn net.Conn) error {
	l, err := secure(ctx, conn, s.Keys, -1, s.timeout)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // nobody waits for a stranger
	f, body, err := readFrame(l.conn, maxControlBytes, nil)
	if err != nil {
		l.close()
		return fmt.Errorf("%s: %w", l, err)
	}
	var j joinBody
	if f.kind == join && l.peer == 1 && decode(body, &j) == nil && j.Run == s.run {
		s.mu.Lock()
		taken := s.next != nil
		if !taken {
			s.next, s.worker.next = l, l
			l.start(4*s.worker.out.size, s.worker.fromNext, s.lost)
		}
		s.mu.Unlock()
		if !taken {
			s.arrived <- struct{}{}
			return nil
		}
	}
	var h helloBody
	if f.kind != hello || decode(body, &h) != nil {
		l.close()
		return fmt.Errorf("%w: %s does not say who it is", errFrame, l)
	}
	reason := s.refusal(l, h)
	s.mu.Lock()
	if reason == "" && s.clients[l.peer] != nil {
		reason = fmt.Sprintf("stage %d is there already, from %s", l.peer, s.clients[l.peer].control.conn.RemoteAddr())
	}
	if reason == "" {
		s.clients[l.peer] = &client{control: l, listen: reachable(h.Listen, conn.RemoteAddr())}
		l.start(maxControlBytes, func(f frame, body []byte) error { return s.heard(l.peer, f, body) }, s.lost)
	}
	s.mu.Unlock()
	if reason != "" {
		l.start(maxControlBytes, func(frame, []byte) error { return nil }, func(*link, error) {})
		l.tell(fail, failBody{Text: reason, Refused: true})
		l.close()
		return fmt.Errorf("%s was refused: %s", l, reason)
	}
	s.say("%s is there", l)
	s.arrived <- struct{}{}
	return nil
}

// refusal is why a client cannot take part, "" if it can.
func (s *Server) refusal(l *link, h helloBody) string {
	switch {
	case h.Protocol != protocol:
		return fmt.Sprintf("it speaks version %d of the protocol, the server version %d: use the same program", h.Protocol, protocol)
	case h.Stage != l.peer:
		return fmt.Sprintf("it says that it is stage %d and shows the certificate of stage %d", h.Stage, l.peer)
	case h.Stage < 1 || h.Stage >= len(s.clients):
		return fmt.Sprintf("stage %d is not one of the plan's clients, 1 to %d", h.Stage, len(s.clients)-1)
	case h.Plan != s.Job.planHash():
		return fmt.Sprintf("it has another plan (hash %s, the server %s): give all stages the same file", short(h.Plan), short(s.Job.planHash()))
	case h.Network != s.Job.Network.Hash():
		return fmt.Sprintf("it has another model (hash %s, the server %s): give all stages the same data and sizes", short(h.Network), short(s.Job.Network.Hash()))
	case h.Stage < len(s.clients)-1 && h.Listen == "":
		return "it does not say where the next stage finds it"
	}
	return ""
}

func short(hash string) string { return hash[:min(len(hash), 12)] }

// reachable is a client's listening address as others see it: where it listens on all its addresses, the one that it
// came from.
func reachable(listen string, from net.Addr) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if h, _, err := net.SplitHostPort(from.String()); err == nil {
			host = h
		}
	}
	return net.JoinHostPort(host, port)
}

// welcomeAll sends the clients how to train and where their neighbours are.
func (s *Server) welcomeAll() {
	previous := ""
	for _, c := range s.clients {
		if c == nil {
			continue
		}
		c.control.tell(welcome, welcomeBody{s.run, s.Training, previous})
		previous = c.listen
	}
}
