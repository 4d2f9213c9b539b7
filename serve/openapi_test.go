package serve

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/openapi.json")

// The document that is served is the one of the reference.
func TestOpenAPI(t *testing.T) {
	const path = "../docs/reference/openapi.json"
	_, s := newClient(t, Config{Token: "a token that is long enough"})
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/openapi.json", nil))
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, w.Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err, w.Body.String())
	}
	pretty.WriteByte('\n')
	if *update {
		if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, pretty.Bytes()) {
		t.Errorf("%s is out of date; go test ./serve -run TestOpenAPI -update writes it", path)
	}
}
