// Package clicks tests the dashboard in Debian's Chromium, as somebody who uses it would. It is a module of its own, so that what drives the browser is no
// dependency of Evenkeel. It has tests only, and needs chromium (apt-get install chromium).
//
//	go test ./...
//	go test -run TestPictures -update ./...   # takes the pictures of docs/guides/dashboard.md anew
package clicks
