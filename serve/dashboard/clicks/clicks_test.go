package clicks

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var update = flag.Bool("update", false, "take the pictures of the documentation anew")

//go:embed testdata/axe.min.js
var axe string

// faults lists what axe-core finds serious or critical in a page as it stands.
func faults(p *page) []string {
	p.t.Helper()
	eval[bool](p, axe+"; true")
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML string }
	}
	text := eval[string](p, "axe.run().then((r) => JSON.stringify(r.violations))")
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		p.t.Fatal(err)
	}
	var all []string
	for _, f := range found {
		line := fmt.Sprintf("%s (%s): %s: %s", f.ID, f.Impact, f.Help, f.Nodes[0].HTML)
		if p.t.Log("axe-core: " + line); f.Impact == "serious" || f.Impact == "critical" {
			all = append(all, line)
		}
	}
	return all
}

var three = []string{"alpha/0", "beta/0", "gamma/0"}

// The list, a job's page, what it shows, and what axe-core says of them in light and dark.
func TestPages(t *testing.T) {
	s := serve(t, "")
	j := s.register("mine", 120, three, []string{"fast", "fast", "slow"}, 0.001, 0.001, 0.004)
	if err := j.play(40); err != nil {
		t.Fatal(err)
	}
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/"))
	p.wait(`document.querySelector("#jobs-table tbody a")?.innerText === "mine"`)
	if row := eval[string](p, `document.querySelector("#jobs-table tbody tr").innerText`); !strings.Contains(row, "running") || !strings.Contains(row, "40") || !strings.Contains(row, "×") {
		t.Errorf("%q", row)
	}
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, f := range faults(p) {
			t.Errorf("list, %s: %s", scheme, f)
		}
	}
	p.run(chromedp.Click("#jobs-table tbody a"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	p.wait(`document.querySelector("#goodput-read").innerText.includes("round 40")`)
	for id, want := range map[string][]string{
		"job-title": {"mine"}, "facts": {"what equal shares would give", "40 rounds, 4,800 samples"}, "nodes": {"gamma/0", "takes part", "slow"}, "log": {"start 1 of the process group: 3 ranks", "the job was created"},
		"lanes-read": {"Newest: round 40 took"}, "sizes-read": {"gamma/0 1"}, "contact": {"connected"},
	} {
		for _, w := range want {
			if got := p.text(id); !strings.Contains(got, w) {
				t.Errorf("%s lacks %q:\n%s", id, w, got)
			}
		}
	}
	// Equal shares take 40*4 ms, which is 750 samples a second.
	var gain, even float64
	said := eval[string](p, `document.querySelector("#fact-Goodput small").innerText`)
	if _, err := fmt.Sscanf(said, "%f× what equal shares would give (%f, a prediction)", &gain, &even); err != nil || even < 735 || even > 765 || gain < 2.7 || gain > 3.1 {
		t.Error(said, err)
	}
	for _, id := range []string{"goodput", "lanes", "sizes"} {
		p.run(chromedp.Click("#"+id+"-data summary"), chromedp.WaitVisible("#"+id+"-data table td"))
	}
	if rows := eval[int](p, `document.querySelectorAll("#goodput-data tbody tr").length`); rows != 40 {
		t.Errorf("%d rows", rows)
	}
	p.run(chromedp.Click(`#span input[value=whole]`))
	p.wait(`document.querySelector("#goodput-read").innerText.includes("round 40")`)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, f := range faults(p) {
			t.Errorf("job, %s: %s", scheme, f)
		}
	}
	p.run(chromedp.Click("#nodes tbody tr:nth-child(3) button"), chromedp.WaitVisible("#node-details li"))
	if got := p.text("node"); !strings.Contains(got, "gamma/0 (slow)") || !strings.Contains(got, "Newest round:") {
		t.Error(got)
	}
	for _, f := range faults(p) {
		t.Errorf("node: %s", f)
	}
	p.run(chromedp.KeyEvent(kb.Escape))
	p.wait(`!document.getElementById("node").open`)
	if paint := eval[float64](p, `performance.getEntriesByName("first-contentful-paint")[0].startTime`); paint > 1000 {
		t.Errorf("the first paint came after %.0f ms", paint)
	} else {
		t.Logf("first paint after %.0f ms", paint)
	}
	if from := eval[string](p, `JSON.stringify([...new Set(performance.getEntriesByType("resource").map((e) => new URL(e.name).host))])`); from != `["`+s.at+`"]` {
		t.Errorf("asked %s", from)
	}
}

// Every control is reached with the keyboard, and acts.
func TestKeyboard(t *testing.T) {
	s := serve(t, "")
	j := s.register("mine", 120, three, []string{"fast", "fast", "slow"}, 0.001, 0.001, 0.004)
	if err := j.play(10); err != nil {
		t.Fatal(err)
	}
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/#/jobs/mine"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	reached := map[string]bool{}
	for range 40 {
		p.run(chromedp.KeyEvent(kb.Tab))
		reached[eval[string](p, `(() => { const e = document.activeElement; return e.id || e.textContent || e.tagName; })()`)] = true
	}
	for _, want := range []string{"Skip to the content", "Jobs", "Goodput as a table", "Shares as a table", "weight-speed", "weight-energy", "pause", "log", "alpha/0", "gamma/0"} {
		if !reached[want] {
			t.Errorf("the keyboard does not reach %q: %v", want, reached)
		}
	}
	p.run(chromedp.Focus("#pause"), chromedp.KeyEvent(kb.Enter))
	p.wait(`document.getElementById("pause").innerText === "Resume"`)
	p.run(chromedp.Focus("#weight-waiting"), chromedp.KeyEvent(kb.End))
	p.wait(`document.getElementById("tune-said").innerText.includes("weights hold")`)
	var state struct {
		Paused     bool
		Objectives struct{ Speed, Waiting float64 }
	}
	if err := s.do("GET", "/v1/jobs/mine", nil, &state); err != nil || !state.Paused || state.Objectives.Waiting != 1 || state.Objectives.Speed != 1 {
		t.Errorf("%+v, %v", state, err)
	}
}

// A slider that moves a thousand times a second sends few requests, and the last position acts.
func TestSliders(t *testing.T) {
	s := serve(t, "")
	j := s.register("mine", 120, three, []string{"fast", "fast", "slow"}, 0.001, 0.001, 0.004)
	defer j.steadily(100 * time.Millisecond)()
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/#/jobs/mine"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	eval[bool](p, `new Promise((done) => {
		const e = document.getElementById("weight-freshness");
		let n = 0;
		const timer = setInterval(() => {
			for (let k = 0; k < 20; k++) { e.value = ++n % 97; e.dispatchEvent(new Event("input", { bubbles: true })); }
			if (n >= 3000) { e.value = 42; e.dispatchEvent(new Event("input", { bubbles: true })); clearInterval(timer); done(true); }
		}, 20);
	})`)
	p.wait(`document.getElementById("tune-said").innerText.includes("weights hold")`)
	var state struct {
		Objectives struct{ Speed, Freshness float64 }
	}
	if err := s.do("GET", "/v1/jobs/mine", nil, &state); err != nil || state.Objectives.Freshness != 0.42 || state.Objectives.Speed != 1 {
		t.Errorf("%+v, %v", state, err)
	}
	if sent := strings.Count(s.log(), "weights: "); sent < 1 || sent > 10 {
		t.Errorf("%d changes in three seconds:\n%s", sent, s.log())
	}
	p.run(chromedp.Click("#pause"))
	p.wait(`document.getElementById("banner").innerText.includes("Paused")`)
	if !strings.Contains(s.log(), "paused") || !strings.Contains(s.log(), "audit") {
		t.Error(s.log())
	}
	// A weight that the job cannot have is refused in words, and the slider goes back.
	p.run(chromedp.Focus("#weight-energy"), chromedp.KeyEvent(kb.End))
	p.wait(`document.getElementById("tune-said").innerText.includes("Nothing was changed")`)
	p.wait(`document.getElementById("weight-energy").value === "0"`)
}

// The token is asked for once, kept in the tab, and shows up nowhere else.
func TestToken(t *testing.T) {
	const secret = "an-administrators-token-1234567890"
	s := serve(t, secret)
	j := s.register("mine", 120, three, []string{"fast", "fast", "slow"}, 0.001, 0.001, 0.004)
	if err := j.play(5); err != nil {
		t.Fatal(err)
	}
	p := open(t, s)
	p.run(chromedp.Navigate(p.at+"/"), chromedp.WaitVisible("#token-text"))
	for _, f := range faults(p) {
		t.Error(f)
	}
	p.run(chromedp.SendKeys("#token-text", "wrong-wrong-wrong-wrong"+kb.Enter))
	p.wait(`document.getElementById("token-said").innerText.includes("refused")`)
	p.run(chromedp.SendKeys("#token-text", secret+kb.Enter))
	p.wait(`document.querySelector("#jobs-table tbody a")?.innerText === "mine"`)
	p.run(chromedp.Click("#jobs-table tbody a"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	p.run(chromedp.Reload())
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	if kept := eval[string](p, `JSON.stringify([Object.values(sessionStorage), localStorage.length, document.cookie])`); kept != `[["`+secret+`"],0,""]` {
		t.Error(kept)
	}
	urls := eval[string](p, `location.href + performance.getEntriesByType("resource").map((e) => e.name).join(" ") + document.documentElement.outerHTML`)
	if strings.Contains(urls, secret) || strings.Contains(s.log(), secret) {
		t.Error("the token is where it should not be")
	}
	// A token to read looks, and changes nothing.
	var made struct{ Token string }
	if err := s.do("POST", "/v1/jobs/mine/tokens", object{"scope": "read"}, &made); err != nil {
		t.Fatal(err)
	}
	p.run(chromedp.Click("#forget"), chromedp.WaitVisible("#token-text"), chromedp.SendKeys("#token-text", made.Token+kb.Enter))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3 && document.getElementById("contact").innerText === "connected"`)
	p.run(chromedp.Click("#pause"))
	p.wait(`document.getElementById("tune-said").innerText.includes("scope is read")`)
}

// A page whose service was killed says so, and goes on where it was when the service is back.
func TestReconnect(t *testing.T) {
	s := serve(t, "")
	j := s.register("mine", 120, three, []string{"fast", "fast", "slow"}, 0.001, 0.001, 0.004)
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/#/jobs/mine"))
	stop := j.steadily(50 * time.Millisecond)
	p.wait(`document.getElementById("contact").innerText === "connected" && document.querySelector("#goodput-read").innerText.includes("round 2")`)
	s.kill()
	p.wait(`document.getElementById("contact").innerText.includes("no contact")`)
	time.Sleep(2 * time.Second)
	s.start()
	p.wait(`document.getElementById("contact").innerText === "connected"`)
	time.Sleep(2500 * time.Millisecond)
	stop()
	p.wait(fmt.Sprintf(`document.querySelector("#goodput-read").innerText.includes("round %d,")`, j.round))
	p.run(chromedp.Click("#goodput-data summary"))
	p.wait(`document.querySelectorAll("#goodput-data tbody tr").length > 5`)
	numbers := eval[[]int](p, `[...document.querySelectorAll("#goodput-data tbody tr")].map((r) => Number(r.cells[0].innerText))`)
	for k, n := range numbers {
		if n != j.round-k {
			t.Fatalf("rounds %v of %d: one is missing or twice", numbers, j.round)
		}
	}
	if len(numbers) < 30 {
		t.Errorf("%d rounds", len(numbers))
	}
}

// A job that the service does not have is said to be unknown, with a way back and nothing to tune; when it registers it appears.
func TestUnknown(t *testing.T) {
	s := serve(t, "")
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/#/jobs/mine"))
	const unknown = `document.getElementById("job-none").offsetParent && !document.getElementById("pause").offsetParent && document.getElementById("banner").hidden`
	p.wait(unknown)
	for _, f := range faults(p) {
		t.Error(f)
	}
	p.run(chromedp.Click("#job-none a"))
	p.wait(`document.getElementById("jobs-none").offsetParent && !document.getElementById("job-none").offsetParent`)
	p.run(chromedp.Navigate(p.at + "/#/jobs/mine"))
	j := s.register("mine", 120, three, []string{"fast", "fast", "slow"}, 0.001, 0.001, 0.004)
	if err := j.play(5); err != nil {
		t.Fatal(err)
	}
	p.wait(`document.getElementById("pause").offsetParent && document.querySelectorAll("#nodes tbody tr").length === 3 && !document.getElementById("job-none").offsetParent`)
	if err := s.do("DELETE", "/v1/jobs/mine", nil, nil); err != nil {
		t.Fatal(err)
	}
	p.wait(unknown)
}

// What happens to many nodes all the time is folded, and opens.
func TestFolded(t *testing.T) {
	s := serve(t, "")
	var names, devices []string
	pace := make([]float64, 80)
	for i := range pace {
		names, devices, pace[i] = append(names, fmt.Sprint("n", i)), append(devices, "a100"), 0.001
	}
	j := s.register("wide", 1600, names, devices, pace...)
	for k := range 6 {
		if err := j.play(8); err != nil {
			t.Fatal(err)
		}
		pace[k] = 0 // it is left out
	}
	if err := j.play(20); err != nil {
		t.Fatal(err)
	}
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/#/jobs/wide"))
	p.wait(`document.querySelector("#log summary")?.innerText.includes("left out")`)
	if n := eval[int](p, `document.querySelectorAll("#log > li").length`); n > 4 {
		t.Errorf("%d lines: %s", n, p.text("log"))
	}
	p.run(chromedp.Click("#log summary"))
	p.wait(`document.getElementById("log").innerText.includes("no gradient came: n3")`)
	for _, f := range faults(p) {
		t.Error(f)
	}
}

// Markup in names is text.
func TestMarkup(t *testing.T) {
	s := serve(t, "")
	names := []string{`<img src=x onerror="document.title='run'">`, `"><script>document.title='run'</script>`, `&lt;b&gt;`}
	j := s.register("mine", 120, names, []string{"<b>fast</b>", "</td></table><h1>", "javascript:alert(1)"}, 0.001, 0.001, 0.004)
	if err := j.play(20); err != nil {
		t.Fatal(err)
	}
	j.pace[0] = 0 // its name comes in the log, too
	if err := j.play(5); err != nil {
		t.Fatal(err)
	}
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/#/jobs/mine"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	p.run(chromedp.Click("#lanes-data summary"), chromedp.Click("#sizes-data summary"), chromedp.Click("#nodes tbody tr button"), chromedp.WaitVisible("#node-details li"))
	for _, n := range names {
		if !strings.Contains(eval[string](p, `document.getElementById("nodes").innerText`), n) {
			t.Errorf("%q is not shown as it is", n)
		}
	}
	if !strings.Contains(p.text("log"), names[0]) || !strings.Contains(p.text("node-title"), names[0]) {
		t.Errorf("%q %q", p.text("log"), p.text("node-title"))
	}
	if n := eval[int](p, `document.querySelectorAll("main img, main script, main b, main h1:not(#jobs-title):not(#job-title), #node img").length`); n != 0 || eval[string](p, "document.title") != "mine – Evenkeel" {
		t.Errorf("%d elements of names", n)
	}
}

var nodes = flag.Int("nodes", 1000, "nodes of TestThousand's job, whose rounds take 0.2 ms for each of them")

// A job of a thousand nodes costs little script, and they are found.
func TestThousand(t *testing.T) {
	s := serve(t, "")
	var names, devices []string
	var pace []float64
	for i := range *nodes {
		names, devices, pace = append(names, fmt.Sprintf("host-%03d/%d", i/8, i%8)), append(devices, []string{"a100", "v100", "t4"}[i%3]), append(pace, 0.001*float64(1+i%3))
	}
	j := s.register("wide", 64**nodes, names, devices, pace...)
	defer j.steadily(time.Duration(*nodes) * 200 * time.Microsecond)()
	p := open(t, s)
	p.run(chromedp.Navigate(p.at + "/#/jobs/wide"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	p.run(chromedp.Click("#nodes .fold"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 54`)
	for _, f := range faults(p) {
		t.Error(f)
	}
	for id, want := range map[string]string{"sizes-read": ", half of them ", "lanes-read": ", half of them "} {
		p.wait(fmt.Sprintf(`document.getElementById(%q).innerText.includes(%q)`, id, want))
	}
	for _, open := range []bool{false, true} {
		if open {
			p.run(chromedp.Click("#lanes-data summary"), chromedp.Click("#sizes-data summary"), chromedp.Click("#goodput-data summary"))
		}
		script, task := spent(p, 10*time.Second)
		t.Logf("%d nodes, a device open, tables open: %v: %.1f ms of script and %.1f ms of all work a second", *nodes, open, script, task)
		if script > 50 {
			t.Errorf("%.1f ms of script a second", script)
		}
	}
	p.run(chromedp.SendKeys("#find", "host-042/"))
	p.wait(`document.querySelectorAll("#nodes tbody tr").length === 8`)
	p.run(input.DispatchMouseEvent(input.MouseMoved, 700, 620))
}

// alike says whether two colours are hard to tell apart.
func alike(a, b color.Color) bool {
	r, g, bl, _ := a.RGBA()
	s, h, bm, _ := b.RGBA()
	const near = 10 << 8
	return max(r, s)-min(r, s) < near && max(g, h)-min(g, h) < near && max(bl, bm)-min(bl, bm) < near
}

// The pictures of the documentation, of simulated ranks under interference.
func TestPictures(t *testing.T) {
	if !*update {
		t.Skip("-update takes them")
	}
	s := serve(t, "")
	ranks := exec.Command(s.path, "workers", "--url", "http://"+s.at, "--job", "llama-7b", "--speed", "40", "--rounds", "100000", "--seed", "4")
	if err := ranks.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ranks.Process.Kill(); _ = ranks.Wait() }()
	p := open(t, s)
	p.run(chromedp.EmulateViewport(1280, 1000), chromedp.Navigate(p.at+"/#/jobs/llama-7b"))
	time.Sleep(60 * time.Second)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		time.Sleep(1500 * time.Millisecond)
		var shot []byte
		p.run(chromedp.CaptureScreenshot(&shot))
		small, err := fewer(shot)
		if err == nil {
			err = os.WriteFile(filepath.Join("../../../docs/images", "dashboard-"+scheme+".png"), small, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// fewer is a PNG in at most 256 colours, each other one as that of them which is nearest: a third of the bytes.
func fewer(shot []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	count, box := map[color.Color]int{}, from.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			count[from.At(x, y)]++
		}
	}
	var palette color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] }) {
		if len(palette) < 256 && !slices.ContainsFunc(palette, func(p color.Color) bool { return alike(c, p) }) {
			palette = append(palette, c)
		}
	}
	to := image.NewPaletted(box, palette)
	draw.Draw(to, box, from, box.Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
