package remote

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// server is as much of S3 as a Store needs, in memory, and does what a test wants to go wrong. experiments/checkpoint/s3
// has the same against another's server.
type server struct {
	mu      sync.Mutex
	objects map[string][]byte
	spoil   func(w http.ResponseWriter, r *http.Request, body []byte) bool // true: it has answered
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(r.Header.Get("Authorization"), "Credential=key/") {
		refuse(w, "AccessDenied", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	spoil := s.spoil
	s.mu.Unlock()
	if spoil != nil && spoil(w, r, body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket/")
	if !ok {
		refuse(w, "NoSuchBucket", http.StatusNotFound)
		return
	}
	switch data, there := s.objects[key]; {
	case r.Method == http.MethodPut:
		s.objects[key] = unchunked(body, r)
		w.Header().Set("ETag", `"x"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case key == "":
		type entry struct{ Key string }
		out := struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Contents []entry
		}{}
		for _, k := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(k, r.URL.Query().Get("prefix")) {
				out.Contents = append(out.Contents, entry{k})
			}
		}
		_ = xml.NewEncoder(w).Encode(out)
	case !there:
		refuse(w, "NoSuchKey", http.StatusNotFound)
	default:
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(data))
	}
}

func refuse(w http.ResponseWriter, code string, status int) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

// unchunked takes the signatures out of a body that was sent in signed pieces.
func unchunked(body []byte, r *http.Request) []byte {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
		return body
	}
	var out []byte
	for {
		head, rest, ok := bytes.Cut(body, []byte("\r\n"))
		var n int
		if _, err := fmt.Sscanf(string(head), "%x", &n); !ok || err != nil || n == 0 {
			return out
		}
		out, body = append(out, rest[:n]...), rest[n+2:]
	}
}
