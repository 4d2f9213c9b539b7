package deploy

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mostExposed is the exposure that systemd 252 reckons, in tenths.
const mostExposed = 13

// systemd takes the unit as it is, and finds little that it could do beyond its work.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze (Debian: apt-get install systemd)")
	}
	text, err := os.ReadFile("systemd/evenkeel.service")
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(string(text))
	known(t, strings.Fields(start[2]))
	unit := filepath.Join(t.TempDir(), "evenkeel.service") // the program need not be installed here
	if err := os.WriteFile(unit, []byte(strings.Replace(string(text), start[1], "/bin/true", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold="+strconv.Itoa(mostExposed), "--no-pager", unit).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
}

// step is a line of the container file.
type step struct{ verb, rest string }

func containerfile(t *testing.T) []step {
	t.Helper()
	text, err := os.ReadFile("container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for line := range strings.SplitSeq(string(text), "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			verb, rest, _ := strings.Cut(line, " ")
			steps = append(steps, step{verb, rest})
		}
	}
	return steps
}

// The image's root, made by the container file's steps in a folder, holds all that the service needs: it runs there, not root, where only its volume can be
// written, is asked for a token, and goes on after it was killed. `.ci/release` builds the image itself.
func TestImageRoot(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	for _, tool := range []string{"unshare", "chroot", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil || os.Getuid() != 0 {
		t.Skipf("only root may make such roots: %v %s", err, out)
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, build := filepath.Join(dir, "root"), filepath.Join(dir, "build")
	// What .ci/release puts beside the container file.
	script := `mkdir -p "$1" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$1/evenkeel" ./cmd/evenkeel && cp /etc/ssl/certs/ca-certificates.crt "$1"`
	release := exec.Command("sh", "-c", script, "sh", build)
	release.Dir = ".."
	if out, err := release.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	var entry, args []string
	user := ""
	for _, s := range containerfile(t) {
		switch {
		case s.verb == "COPY":
			f := strings.Fields(s.rest)
			to := filepath.Join(root, f[1])
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("cp", filepath.Join(build, f[0]), to).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
		case s.verb == "USER":
			user = s.rest
		case s.verb == "ENTRYPOINT":
			entry = list(t, s.rest)
		case s.verb == "CMD":
			args = list(t, s.rest)
		}
	}
	known(t, args)
	if out, err := exec.Command("ldd", filepath.Join(root, "evenkeel")).CombinedOutput(); err == nil {
		t.Errorf("not static: %s", out)
	}
	id, group, _ := strings.Cut(user, ":")
	if id == "0" || id == "" {
		t.Fatalf("user %q", user)
	}
	// What a volume and two secrets would bring.
	state, secrets := filepath.Join(dir, "state"), filepath.Join(root, "etc/evenkeel")
	for _, d := range []string{state, filepath.Join(secrets, "tls"), filepath.Join(root, "var/lib/evenkeel")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const token = "a-token-for-the-image-test"
	script = `cd "$1" && printf %s ` + token + ` > token && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=evenkeel -addext subjectAltName=IP:127.0.0.1 -keyout tls/tls.key -out tls/tls.crt 2>/dev/null &&
chown -R ` + user + ` "$1" "$2" && chmod 0700 "$2"`
	if out, err := exec.Command("sh", "-c", script, "sh", secrets, state).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	for k, a := range args {
		if a == "0.0.0.0:7070" {
			args[k] = at
		}
	}
	run := `mount --bind "$1" "$1" && mount --bind "$2" "$1/var/lib/evenkeel" && mount -o remount,ro,bind "$1" && root=$1 && shift 2 && exec chroot --userspec ` + id + ":" + group + ` "$root" "$@"`
	start := func() *exec.Cmd {
		cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", run, "sh", root, state}, append(entry, args...)...)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	curl := func(more ...string) string {
		out, _ := exec.Command("curl", append([]string{"-s", "-w", " %{http_code}", "--cacert", filepath.Join(secrets, "tls/tls.crt"), "-H", "Content-Type: application/json"}, more...)...).CombinedOutput()
		return string(out)
	}
	up := func() {
		for k := 0; !strings.Contains(curl("https://"+at+"/readyz"), "200"); k++ {
			if k == 200 {
				t.Fatal("it does not come up")
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	cmd := start()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	up()
	if got := curl("https://" + at + "/v1/jobs"); !strings.HasSuffix(got, "401") {
		t.Error(got)
	}
	if got := curl("-X", "PUT", "-d", "{}", "-H", "Authorization: Bearer "+token, "https://"+at+"/v1/jobs/mine"); !strings.HasSuffix(got, "201") {
		t.Error(got)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	cmd = start()
	up()
	if got := curl("-H", "Authorization: Bearer "+token, "https://"+at+"/v1/jobs/mine"); !strings.HasSuffix(got, "200") {
		t.Errorf("after a kill: %s", got)
	}
}

// list reads a list of words as the container file writes it.
func list(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}
