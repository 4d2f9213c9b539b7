package execute

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// Whatever comes over a link, the reader takes frames that are written the same way, or errs without taking more memory
// than the limit.
func FuzzFrame(f *testing.F) {
	hi, err := json.Marshal(helloBody{Protocol: protocol, Stage: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(appendHeader(nil, frame{kind: hello}, len(hi)), hi...))
	f.Add(append(appendHeader(nil, frame{activation, 7, 2}, 8), appendWords(nil, []float32{1, -2})...))
	f.Add(appendHeader(nil, frame{kind: begin}, 1<<31-1))
	f.Add(appendHeader(nil, frame{kind: kinds}, 0))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\nand more of it"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 64
		r := strings.NewReader(string(in))
		var buffer, back []byte
		for {
			head, body, err := readFrame(r, limit, buffer)
			if err != nil {
				if !errors.Is(err, errFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				break
			}
			if len(body) > limit {
				t.Fatalf("a body of %d bytes", len(body))
			}
			back = append(appendHeader(back, head, len(body)), body...)
			values, whole := make([]float32, 2), make([]int32, 2)
			if err := words(values, body); (err == nil) != (len(body) == 8) {
				t.Fatal(err)
			}
			if err := words(whole, body); err == nil && string(appendWords(nil, whole)) != string(body) {
				t.Fatal("other targets")
			}
			buffer = body
		}
		if !strings.HasPrefix(string(in), string(back)) {
			t.Fatalf("read %x from %x", back, in)
		}
	})
}
