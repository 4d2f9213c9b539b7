package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document that the requests are drawn from.
type document struct {
	t      testing.TB
	root   object
	schema *jsonschema.Compiler
	calls  []call
	tokens []string // one of them is sent, if there are any
}

// call is an operation.
type call struct {
	method, path string
	op           object
}

func readDocument(t testing.TB) *document {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t: t, schema: jsonschema.NewCompiler()}
	if err := json.Unmarshal(text, &d.root); err != nil {
		t.Fatal(err)
	}
	if err := d.schema.AddResource("urn:api", d.root); err != nil {
		t.Fatal(err)
	}
	for path, item := range d.root["paths"].(object) {
		for method, op := range item.(object) {
			d.calls = append(d.calls, call{strings.ToUpper(method), path, op.(object)})
		}
	}
	slices.SortFunc(d.calls, func(a, b call) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return d
}

// resolve follows a reference.
func (d *document) resolve(s object) object {
	if ref, ok := s["$ref"].(string); ok {
		return d.root["components"].(object)["schemas"].(object)[ref[strings.LastIndex(ref, "/")+1:]].(object)
	}
	return s
}

// draw makes a value of a schema; one in so many is not.
func (d *document) draw(rng *rand.Rand, s object, wild int) any {
	s = d.resolve(s)
	if rng.IntN(wild) == 0 {
		return []any{nil, true, -1, 0, 1e9, -0.5, 1e300, "", "x", strings.Repeat("y", 300), []any{}, object{}, []any{nil}, math.MaxInt64}[rng.IntN(14)]
	}
	if e, ok := s["enum"].([]any); ok {
		return e[rng.IntN(len(e))]
	}
	number := func(key string, otherwise float64) float64 {
		if v, ok := s[key].(float64); ok {
			return v
		}
		return otherwise
	}
	kind, ok := s["type"].(string)
	if !ok { // several, null among them
		kinds := s["type"].([]any)
		kind = kinds[rng.IntN(len(kinds))].(string)
	}
	switch kind {
	case "null":
		return nil
	case "boolean":
		return rng.IntN(2) == 0
	case "integer", "number":
		least, most := number("minimum", number("exclusiveMinimum", 0)), number("maximum", 1e6)
		v := least + rng.Float64()*(min(most, least+20)-least)
		if rng.IntN(10) == 0 {
			v = []float64{least, most}[rng.IntN(2)]
		}
		if kind == "integer" {
			return int64(v)
		}
		return v
	case "string":
		return []string{"job", "a/0", "a/1", "auto", "1.5s", "0123456789", "llama-3b-512-fp16", "t4", "é", "a\nb"}[rng.IntN(10)]
	case "array":
		var list []any
		for range rng.IntN(4) {
			list = append(list, d.draw(rng, s["items"].(object), wild))
		}
		return list
	}
	out := object{}
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(object)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(required, any(name)) && rng.IntN(50) > 0 || rng.IntN(2) == 0 {
			out[name] = d.draw(rng, properties[name].(object), wild)
		}
	}
	return out
}

// send sends a random request to h and holds the answer to the document.
func (d *document) send(rng *rand.Rand, h http.Handler) int {
	c := d.calls[rng.IntN(len(d.calls))]
	if c.method == "DELETE" && rng.IntN(5) > 0 {
		return 0
	}
	path := c.path
	parameters, _ := c.op["parameters"].([]any)
	query := ""
	for _, p := range parameters {
		p := p.(object)
		v := fmt.Sprint(d.draw(rng, p["schema"].(object), 30))
		if name := p["name"].(string); p["in"] == "path" {
			if name == "job" {
				v = []string{"job", "job", "job", "other", "no", "a%20b", "..%2f", "kept"}[rng.IntN(7+min(len(d.tokens), 1))]
			}
			path = strings.Replace(path, "{"+name+"}", strings.ReplaceAll(v, "/", "%2f"), 1)
		} else if rng.IntN(2) == 0 {
			query = "?" + name + "=" + strings.ReplaceAll(v, " ", "+")
		}
	}
	body := ""
	if b, ok := c.op["requestBody"].(object); ok {
		text, err := json.Marshal(d.draw(rng, b["content"].(object)["application/json"].(object)["schema"].(object), 60))
		if err != nil {
			d.t.Fatal(err)
		}
		if body = string(text); rng.IntN(12) == 0 {
			body = body[:rng.IntN(len(body)+1)]
		}
	}
	ctx, done := context.WithCancel(d.t.Context())
	defer done()
	if strings.HasSuffix(c.path, "/events") {
		done() // a stream ends with its first event
	}
	r, err := http.NewRequestWithContext(ctx, c.method, "http://127.0.0.1"+strings.Map(func(r rune) rune {
		if r < ' ' {
			return '_'
		}
		return r
	}, path+query), strings.NewReader(body))
	if err != nil {
		return 0 // not even a URL
	}
	r.Header.Set("Content-Type", "application/json")
	if len(d.tokens) > 0 {
		r.Header.Set("Authorization", "Bearer "+d.tokens[rng.IntN(len(d.tokens))])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	d.check(c, w, body)
	return w.Code
}

// check holds an answer to what the document says of it.
func (d *document) check(c call, w *httptest.ResponseRecorder, body string) {
	if w.Code >= 500 && w.Code != http.StatusInsufficientStorage {
		d.t.Fatalf("%s %s %s: %d: %s", c.method, c.path, body, w.Code, w.Body)
	}
	if w.Code == http.StatusMovedPermanently || w.Code == http.StatusTemporaryRedirect || w.Code == http.StatusNotFound && !strings.Contains(w.Body.String(), "no such job") {
		return // another path: the router's
	}
	response, ok := c.op["responses"].(object)[fmt.Sprint(w.Code)].(object)
	if !ok {
		d.t.Fatalf("%s %s %s: %d is not in the document: %s", c.method, c.path, body, w.Code, w.Body)
	}
	content, _ := response["content"].(object)
	kind := strings.Split(w.Header().Get("Content-Type"), ";")[0]
	media, ok := content[kind].(object)
	if !ok || media["schema"] == nil || w.Code == http.StatusOK && (c.path == "/v1/jobs/{job}/sizes" || strings.HasSuffix(c.path, "/events")) {
		return
	}
	ref := media["schema"].(object)["$ref"].(string)
	schema, err := d.schema.Compile("urn:api" + ref)
	if err != nil {
		d.t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		d.t.Fatalf("%s %s: %v: %s", c.method, c.path, err, w.Body)
	}
	if err := schema.Validate(v); err != nil {
		d.t.Fatalf("%s %s %s: %s: %v", c.method, c.path, body, w.Body, err)
	}
}

// Requests drawn from the document, most of them sound, never make the service fail, and get answers that
// are in the document, in its form.
func TestDocumentIsKept(t *testing.T) {
	d := readDocument(t)
	codes := map[int]int{}
	for seed := range uint64(60) {
		_, s := newClient(t, Config{Jobs: 3, Ranks: 8})
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 100 {
			codes[d.send(rng, s.handler)]++
		}
	}
	t.Logf("%v", codes)
	for _, code := range []int{200, 201, 204, 400, 404, 409, 422} {
		if codes[code] < 3 {
			t.Errorf("%d answers with %d: the requests do not reach what they should: %v", codes[code], code, codes)
		}
	}
}

// The same with tokens of every scope, of this job and of another, under limits: whoever sends what, nobody learns or changes what the token does not open.
func TestDocumentIsKeptWithTokens(t *testing.T) {
	d := readDocument(t)
	codes := map[int]int{}
	for seed := range uint64(80) {
		codes = d.attack(t, seed, 100, codes)
	}
	t.Logf("%v", codes)
	for _, code := range []int{200, 201, 204, 400, 401, 403, 404, 409, 422, 429} {
		if codes[code] < 3 {
			t.Errorf("%d answers with %d: the requests do not reach what they should: %v", codes[code], code, codes)
		}
	}
}

// attack sends requests with all kinds of tokens to a service of three jobs, of which one is kept out of their reach.
func (d *document) attack(t *testing.T, seed uint64, requests int, codes map[int]int) map[int]int {
	t.Helper()
	own := *d
	own.t = t
	var now clock
	c, s := newClient(t, Config{Jobs: 4, Ranks: 8, Token: adminToken + "\nread one-who-only-looks-at-it", TokenRate: 1, AddressRate: 100, Clock: now.read})
	for _, name := range []string{"job", "other", "kept"} {
		now.now = now.now.Add(time.Second)
		c.do("PUT", "/v1/jobs/"+name, object{}, nil)
	}
	c.start("kept", "0123456789", 64, 2)
	own.tokens = []string{"", "nobodys-token-at-all", "one-who-only-looks-at-it"}
	for _, name := range []string{"job", "other"} {
		for _, scope := range scopes {
			now.now = now.now.Add(time.Second)
			own.tokens = append(own.tokens, c.newToken(name, object{"scope": scope}).Token)
		}
	}
	before := s.known("kept").memory()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range requests {
		now.now = now.now.Add(time.Duration(rng.IntN(40)) * time.Millisecond)
		codes[own.send(rng, s.handler)]++
	}
	if after := s.known("kept"); after == nil || after.memory() != before {
		t.Errorf("seed %d: a job changed that no token opens", seed)
	}
	return codes
}

func FuzzTokens(f *testing.F) {
	d := readDocument(f)
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { d.attack(t, seed, 50, map[int]int{}) })
}

func FuzzAPI(f *testing.F) {
	d := readDocument(f)
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		own := *d
		own.t = t
		_, s := newClient(t, Config{Jobs: 3, Ranks: 8})
		rng := rand.New(rand.NewPCG(a, b))
		for range 50 {
			own.send(rng, s.handler)
		}
	})
}

// Whatever of a request is spoilt, how often and where, a refusal repeats little of it.
func TestLittleIsRepeated(t *testing.T) {
	d := readDocument(t)
	_, s := newClient(t, Config{Jobs: 3, Ranks: 8})
	refused, most := map[string]int{}, 0
	rng := rand.New(rand.NewPCG(1, 1))
	for range 6000 {
		c := d.calls[rng.IntN(len(d.calls))]
		much := strings.Repeat("~", 1+rng.IntN(3000))
		spoilt := func(sound string) string {
			if rng.IntN(6) == 0 {
				return much
			}
			return sound
		}
		path := strings.NewReplacer("{job}", spoilt("job"), "{generation}", spoilt("1"), "{rank}", spoilt("0"), "{id}", spoilt("01234567")).Replace(c.path)
		body := ""
		if b, ok := c.op["requestBody"].(object); ok {
			text, err := json.Marshal(d.draw(rng, b["content"].(object)["application/json"].(object)["schema"].(object), 60))
			if err != nil {
				t.Fatal(err)
			}
			body = string(text)
			at := rng.IntN(len(body) + 1)
			body = []string{
				body, much, body[:at] + much + body[at:], strings.ReplaceAll(body, `":`, much+`":`), strings.ReplaceAll(body, `:"`, `:"`+much), strings.ReplaceAll(body, "0", strings.Repeat("7", 400)),
				`{"` + strings.Repeat(much[:len(much)/100+1]+`":"~","`, 100) + `":1}`, `{"id":"01234567","global_batch":8,"ranks":[` + strings.Repeat(`{"~~":"~~"},`, 100) + `{}]}`,
				`{"id":"01234567","global_batch":8,"ranks":[` + strings.Repeat(`{"name":"`+much[:len(much)/100+1]+`"},`, 7) + `{"name":"a"}]}`,
			}[rng.IntN(9)]
		}
		r := httptest.NewRequest(c.method, "http://127.0.0.1"+spoilt("")+path+spoilt("?format="+spoilt("json")+"&epoch="+spoilt("1")+"&"+spoilt("ranks")+"=true"), strings.NewReader(body))
		for _, name := range []string{"Content-Type", "Accept", "Authorization", "Last-Event-ID", "Origin", "Sec-Fetch-Site", "Range", "If-None-Match", "X-"} {
			r.Header.Set(name, spoilt(map[string]string{"Content-Type": "application/json"}[name]))
		}
		r.Host = spoilt(r.Host)
		if strings.HasSuffix(c.path, "/events") {
			ctx, done := context.WithCancel(t.Context())
			done()
			r = r.WithContext(ctx)
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code < 300 {
			continue
		}
		refused[c.method+c.path]++
		all := fmt.Sprint(w.Header(), w.Body)
		most = max(most, strings.Count(all, "~")+strings.Count(all, "7"))
		if most > said || w.Body.Len() > 1500 {
			t.Fatalf("%s %.100s: %d bytes: %d %.3000s", c.method, r.URL, len(body), w.Code, all)
		}
	}
	if len(refused) != len(d.calls) || most < 100 {
		t.Errorf("the search does not reach what it should: at most %d bytes repeated, refusals %v", most, refused)
	}
}
