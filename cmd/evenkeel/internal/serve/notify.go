package serve

import (
	"context"
	"net"
	"os"

	"github.com/rs/zerolog"
)

// notify tells the service manager of a unit with Type=notify what the process is at (sd_notify(3)): READY=1, STOPPING=1. Without one it does nothing.
func notify(log zerolog.Logger, state string) {
	at := os.Getenv("NOTIFY_SOCKET")
	if at == "" {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unixgram", at) // @ begins an abstract name for net, too
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		log.Warn().Err(err).Msg("systemd could not be notified: " + state)
	}
}
