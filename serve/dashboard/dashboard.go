// Package dashboard holds the pages that show the jobs of a service in a browser: plain files, which speak to the API like any other
// client and to no other host. uPlot 1.6.32 draws their lines (static/uPlot.iife.min.js and .css, as its npm package has them; MIT licence beside them).
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var files embed.FS

// policy lets the pages run what is embedded here, and nothing else: no script in the page, no string that becomes markup,
// no other host.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// kinds are the content types of the files, whatever the machine takes them for.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// Handler serves the page at / and what it needs below /static/. None of it is secret: the token is asked for in the page.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if name == "" {
			name = "static/index.html"
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			http.Error(w, "no such file", http.StatusNotFound)
			return
		}
		sum := sha256.Sum256(text)
		h := w.Header()
		h.Set("Content-Type", kinds[path.Ext(name)])
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // ask again, which costs no bytes where nothing changed
		h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	})
}
