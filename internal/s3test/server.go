// Package s3test is as much of S3 as package checkpoint/remote needs, in memory, for tests. What a test wants to
// go wrong goes wrong.
// See the Example.
package s3test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Server has one bucket, named bucket, for whoever signs with the key id "key"; signatures are not checked.
type Server struct {
	Mu      sync.Mutex // guards the fields
	Objects map[string][]byte
	// Spoil makes a request go wrong; true says that it has answered. nil: nothing goes wrong.
	Spoil func(w http.ResponseWriter, r *http.Request, body []byte) bool
}

// Start serves an empty bucket at the address returned, until stop is called.
func Start() (s *Server, url string, stop func()) {
	s = &Server{Objects: map[string][]byte{}}
	h := httptest.NewServer(s)
	return s, h.URL, h.Close
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(r.Header.Get("Authorization"), "Credential=key/") {
		Refuse(w, "AccessDenied", http.StatusForbidden)
		return
	}
	s.Mu.Lock()
	spoil := s.Spoil
	s.Mu.Unlock()
	if spoil != nil && spoil(w, r, body) {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket/")
	if !ok {
		Refuse(w, "NoSuchBucket", http.StatusNotFound)
		return
	}
	switch data, there := s.Objects[key]; {
	case r.Method == http.MethodPut:
		s.Objects[key] = unchunked(body, r)
		w.Header().Set("ETag", `"x"`)
	case r.Method == http.MethodDelete:
		delete(s.Objects, key)
		w.WriteHeader(http.StatusNoContent)
	case key == "":
		type entry struct{ Key string }
		out := struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Contents []entry
		}{}
		for _, k := range slices.Sorted(maps.Keys(s.Objects)) {
			if strings.HasPrefix(k, r.URL.Query().Get("prefix")) {
				out.Contents = append(out.Contents, entry{k})
			}
		}
		_ = xml.NewEncoder(w).Encode(out)
	case !there:
		Refuse(w, "NoSuchKey", http.StatusNotFound)
	default:
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(data))
	}
}

// Refuse answers with an error of S3, such as AccessDenied.
func Refuse(w http.ResponseWriter, code string, status int) {
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
