package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(name, tag string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, name, nil)
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

// Every file is served with its type and the policy, and costs nothing when it has not changed.
func TestFiles(t *testing.T) {
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		w := get("/"+name, "")
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") != kinds[path.Ext(name)] || h.Get("Content-Type") == "" || h.Get("Content-Security-Policy") != policy || h.Get("ETag") == "" {
			t.Errorf("%s: %d %v", name, w.Code, h)
		}
		if again := get("/"+name, h.Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", name, again.Code)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if w := get("/", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "<title>Evenkeel") {
		t.Errorf("%d", w.Code)
	}
	for _, name := range []string{"/static/none.js", "/static/", "/static", "/dashboard.go", "/static/../dashboard.go"} {
		if w := get(name, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// The pages name no other host, hold no script or style of their own, and make no markup of strings.
func TestNothingFromElsewhere(t *testing.T) {
	address := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+(\.[a-z0-9-]+)+`)
	inline := regexp.MustCompile(`(?i)<script>|<style|\son[a-z]+=|\sstyle=|javascript:`)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function`)
	allowed := map[string]bool{"http://www.w3.org": true, "https://github.com": true} // a namespace; who wrote uPlot
	for _, pattern := range []string{"static/*.html", "static/*.js", "static/*.css", "static/*.svg"} {
		names, err := fs.Glob(files, pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range address.FindAllString(string(text), -1) {
				if !allowed[found] {
					t.Errorf("%s names %s", name, found)
				}
			}
			if found := inline.FindString(string(text)); found != "" && strings.HasSuffix(name, ".html") {
				t.Errorf("%s holds %q", name, found)
			}
			if found := markup.FindString(string(text)); found != "" {
				t.Errorf("%s has %s", name, found)
			}
		}
	}
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s", part)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Error(policy)
	}
}

// uPlot is that of the npm package uplot 1.6.32, to the byte.
func TestVendored(t *testing.T) {
	for name, want := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f", "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"uPlot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		text, err := fs.ReadFile(files, "static/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is another: %x", name, sum)
		}
	}
}
