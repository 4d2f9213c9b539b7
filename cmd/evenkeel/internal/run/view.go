package run

import (
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/term"

	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
)

// view shows a run in progress.
type view interface {
	show()  // after every round
	close() // after the last
}

// quietView shows only a progress bar on standard error.
type quietView struct {
	w           *watch
	report      func(done, total int)
	closeTheBar func()
}

func newQuietView(w *watch) *quietView {
	report, clear := w.app.Progress("running")
	return &quietView{w, report, clear}
}

func (v *quietView) show()  { v.report(len(v.w.history.rounds), v.w.setup.rounds) }
func (v *quietView) close() { v.closeTheBar() }

// lineView prints a line every tenth of the run, or where that takes longer every ten
// seconds, and a table of the nodes at the end.
type lineView struct {
	w     *watch
	bar   *quietView
	lines time.Time // when the newest was printed
}

func newLineView(w *watch) *lineView {
	late, rule := "", ""
	if closesEarly(w.setup.cluster) {
		late = "   late"
	}
	if w.setup.freeRule() {
		rule = fmt.Sprintf("  %-8s", "quorum")
	}
	if w.setup.cluster.Collect.Timed() {
		rule += "  deadline  samples"
	}
	fmt.Fprintf(w.app.Out, "%s\n\nround    time   idle%s  samples/s  changed     in%s  slowest\n", w.setup.describe(), late, rule)
	return &lineView{w, newQuietView(w), time.Now()}
}

func (v *lineView) show() {
	w := v.w
	n := len(w.history.rounds)
	v.bar.show()
	if every := max(w.setup.rounds/10, 1); n > 1 && n%every != 0 && n != w.setup.rounds && time.Since(v.lines) < stillAt {
		return
	}
	v.lines = time.Now()
	now := &w.history.rounds[n-1]
	changed := 0
	for i, b := range w.round.Plan.Sizes {
		if n > 1 && b != w.before[i] {
			changed++
		}
	}
	slowest, longest, in, taking := "", 0.0, 0, 0
	for i := range w.round.Report.Nodes {
		r := &w.round.Report.Nodes[i]
		if r.Status != cluster.Absent {
			taking++
		}
		if r.Status == cluster.In {
			in++
		}
		if r.Measured() && r.Seconds > longest {
			slowest, longest = fmt.Sprintf("%s (%s)", w.setup.cluster.Nodes[i].Name, cli.Seconds(r.Seconds)), r.Seconds
		}
	}
	late, rule := "", ""
	if closesEarly(w.setup.cluster) {
		late = fmt.Sprintf("  %5s", cli.Percent(now.late))
	}
	if w.setup.freeRule() {
		rule = fmt.Sprintf("  %-8s", strings.TrimPrefix(now.rule.String(), "quorum "))
	}
	if c := &w.round.Plan.Collect; c.Timed() {
		rule += fmt.Sprintf("  %8s  %7d", cli.Seconds(c.Deadline.Seconds()), w.round.Report.Accepted)
	}
	fmt.Fprintf(w.app.Out, "%5d  %6s  %5s%s  %9s  %7d  %5s%s  %s\n", n, cli.Seconds(now.wait), cli.Percent(now.idle), late, cli.Rate(w.throughput()), changed, fmt.Sprintf("%d/%d", in, taking), rule, slowest)
}

func (v *lineView) close() {
	v.bar.close()
	if len(v.w.history.rounds) > 0 {
		_ = cli.PrintLines(v.w.app.Out, append([]string{""}, v.w.nodes(mostRows, 0, paint(false))...)) // printing the summary meets the same error
	}
}

// throughput is the accepted samples per second of the newest round.
func (w *watch) throughput() float64 {
	return float64(w.round.Report.Accepted) / max(w.round.Report.Wait.Seconds(), 1e-9)
}

// uniformTime is the time of the newest round with equal sizes, once it is known.
func (w *watch) uniformTime() string {
	if _, m := w.references.at(uniformReference, len(w.history.rounds)); m != nil {
		return fmt.Sprintf(" (equal sizes: %s)", cli.Seconds(m.wait))
	}
	return ""
}

// liveView refreshes a table in place.
type liveView struct {
	w      *watch
	begun  time.Time
	drawn  time.Time
	height int // lines drawn so far
	paint  paint
}

const (
	liveTime  = 7 * time.Second        // of a run of many rounds on the screen
	slowRound = 350 * time.Millisecond // the longest time of one round on the screen
	framePace = 100 * time.Millisecond
)

func newLiveView(w *watch) *liveView {
	v := &liveView{w: w, begun: time.Now(), paint: paint(cli.Colours(w.app.Out))}
	width, _ := v.size()
	// The first round of a large cluster takes a while.
	fmt.Fprintf(w.app.Out, "\x1b[?25l%s\nround 1/%d ...\n", clip(w.setup.describe(), width-1), w.setup.rounds) // without the cursor
	v.height = 2
	return v
}

// show slows the run down so that a person can follow: the first rounds, in which most
// changes, slowly, later ones faster and faster.
func (v *liveView) show() {
	n, all := len(v.w.history.rounds), v.w.setup.rounds
	if n == 1 || n == all || time.Since(v.drawn) >= framePace {
		v.draw()
	}
	length := min(liveTime, time.Duration(all)*slowRound)
	due := v.begun.Add(time.Duration(float64(length) * math.Sqrt(float64(n)/float64(all))))
	if left := time.Until(due); left > 0 {
		select {
		case <-v.w.app.Ctx.Done():
		case <-time.After(left):
		}
	}
}

// close leaves the last round on the screen.
func (v *liveView) close() {
	if len(v.w.history.rounds) > 0 {
		v.draw()
	}
	fmt.Fprint(v.w.app.Out, "\x1b[?25h")
}

// size is the size of the terminal, 80 x 24 if it is unknown.
func (v *liveView) size() (width, height int) {
	width, height, err := term.GetSize(int(v.w.app.Out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

func (v *liveView) draw() {
	w := v.w
	width, height := v.size()
	now := &w.history.rounds[len(w.history.rounds)-1]
	lines := []string{
		w.setup.describe(),
		fmt.Sprintf("round %d/%d   time %s%s   idle %s   %s samples/s", len(w.history.rounds), w.setup.rounds,
			v.paint.good(cli.Seconds(now.wait)), w.uniformTime(), cli.Percent(now.idle), cli.Rate(w.throughput())),
	}
	if closesEarly(w.setup.cluster) {
		rule := ""
		if w.setup.freeRule() {
			rule = "   " + now.rule.String()
		}
		lines = append(lines, fmt.Sprintf("late %s of the accepted samples%s", cli.Percent(now.late), rule))
	}
	if due := w.due(); due != "" {
		lines = append(lines, due)
	}
	lines = append(lines, "idle so far "+v.paint.faint(sparkline(w.history.rounds, min(60, width-13))), "")
	lines = append(lines, w.nodes(min(mostRows, height-len(lines)-2), width-1, v.paint)...)
	lines = lines[:min(len(lines), max(height-1, 1))]
	var b strings.Builder
	if v.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", v.height)
	}
	for _, l := range lines {
		b.WriteString(clip(l, width-1) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(w.app.Out, b.String())
	v.height, v.drawn = len(lines), time.Now()
}

// clip cuts a line to a width, not counting colour codes.
func clip(s string, width int) string {
	if cli.Visible(s) <= width {
		return s
	}
	var b strings.Builder
	n, escape := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case n == width:
			continue
		default:
			n++
		}
		b.WriteRune(r)
	}
	return b.String()
}

// sparkline draws the idle share over the rounds, the newest at the right.
func sparkline(rounds []moment, width int) string {
	if width < 1 {
		return ""
	}
	const bars = "▁▂▃▄▅▆▇█"
	glyphs := []rune(bars)
	var b strings.Builder
	cells := min(width, len(rounds))
	for k := range cells {
		from, to := k*len(rounds)/cells, (k+1)*len(rounds)/cells
		mean := 0.0
		for _, m := range rounds[from:to] {
			mean += m.idle / float64(to-from)
		}
		// An idle share of one half fills a bar: more is rare after the first rounds.
		b.WriteRune(glyphs[min(int(2*mean*float64(len(glyphs))), len(glyphs)-1)])
	}
	return b.String()
}

// paint colours text, if true.
type paint bool

func (p paint) with(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) faint(s string) string { return p.with("2", s) }
func (p paint) good(s string) string  { return p.with("32", s) }
func (p paint) warn(s string) string  { return p.with("33", s) }
func (p paint) bad(s string) string   { return p.with("31", s) }
