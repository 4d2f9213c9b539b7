package main

import (
	"syscall"
	"time"
)

// fault makes a fault and heals it.
func (s *servers) fault(kind, k int, lasts time.Duration) string {
	p := s.services[k]
	switch kind {
	case 0:
		p.signal(syscall.SIGSTOP)
		time.Sleep(lasts)
		p.signal(syscall.SIGCONT)
		return "a service is paused"
	case 1:
		p.end(syscall.SIGKILL)
		time.Sleep(lasts)
		p.start()
		return "a service is killed"
	case 2:
		p.end(syscall.SIGTERM)
		time.Sleep(lasts)
		p.start()
		return "a service is ended"
	case 3:
		for _, g := range s.gates[k] {
			g.mu.Lock()
		}
		time.Sleep(lasts)
		for _, g := range s.gates[k] {
			g.mu.Unlock()
		}
		return "a service is cut off NATS"
	case 4:
		leader := s.nats[s.leader()]
		leader.signal(syscall.SIGSTOP)
		time.Sleep(lasts)
		leader.signal(syscall.SIGCONT)
		return "the leader of NATS is paused"
	case 5:
		leader, begun := s.nats[s.leader()], time.Now()
		leader.end(syscall.SIGKILL)
		other := time.AfterFunc(0, func() {
			for s.leaderNow() == leader.args[1] || s.leaderNow() == "" {
				time.Sleep(20 * time.Millisecond)
			}
			s.t.Logf("NATS has another leader after %v", time.Since(begun).Round(time.Millisecond))
		})
		defer other.Stop()
		time.Sleep(lasts)
		leader.start()
		return "the leader of NATS is killed"
	case 6, 7:
		what := "a server of NATS is cut off the others"
		if kind == 7 {
			k, what = s.leader(), "the leader of NATS is cut off the others"
		}
		for i := range 3 {
			if i != k {
				s.routes[k][i].mu.Lock()
				s.routes[i][k].mu.Lock()
			}
		}
		time.Sleep(lasts)
		for i := range 3 {
			if i != k {
				s.routes[k][i].mu.Unlock()
				s.routes[i][k].mu.Unlock()
			}
		}
		return what
	case 8:
		late := func(d time.Duration) {
			for _, gates := range s.gates {
				for _, g := range gates {
					g.late.Store(int64(d))
				}
			}
		}
		late(300 * time.Millisecond) // there and back
		time.Sleep(lasts)
		late(time.Second) // that is too late
		time.Sleep(lasts / 2)
		late(0)
		return "NATS answers late"
	}
	for _, p := range s.services { // at once
		p.end(syscall.SIGKILL)
	}
	for _, p := range s.services {
		p.start()
	}
	return "all services are killed"
}

const kinds = 10
