// Package layout holds the repository to its own rules, each with its reason; see
// CONTRIBUTING.md. It has tests only.
package layout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const module = "evenkeel/"

// room is a folder with its packages, and what they may import beside each other, the
// rooms within theirs, and internal.
type room struct {
	folder string
	apart  bool // its packages may not import each other
	uses   []string
	why    string
}

// rooms is "who may import whom". The longest folder that fits counts.
var rooms = []room{
	{"cmd", true, []string{"agent", "cluster"},
		"main joins the families of commands; nothing may import a command, or its flags would become an interface"},
	{"cmd/evenkeel/internal", true, []string{"cmd/evenkeel/internal/cli", "agent", "bucket", "checkpoint", "cluster", "ddqn", "env", "forward", "lab", "planner", "serve", "train", "internal/figure", "internal/runlog"},
		"a family of commands wires rooms together and can be read without the other families: what they share is in cli"},
	{"cmd/evenkeel/internal/cli", false, []string{"agent", "cluster"},
		"what all commands share must not know any of them"},
	{"experiments", true, []string{"agent", "bucket", "checkpoint", "cluster", "ddqn", "env", "forward", "lab", "planner", "serve", "train", "internal/figure", "internal/runlog"},
		"an experiment may look at everything; nothing may rest on an experiment"},
	{"experiments/internal", false, []string{"agent", "cluster", "env", "lab", "planner"},
		"what experiments share judges policies, writes and reads results"},
	{"agent", false, []string{"cluster", "ddqn", "env"},
		"policies join the learner with the problem; the other rooms solve other problems"},
	{"agent/baseline", false, []string{"agent", "cluster", "ddqn"},
		"a rule is judged like the agent, so it knows policies and no more of the agent than that"},
	{"agent/clusters", false, []string{"cluster"},
		"example clusters serve whoever wants one"},
	{"lab/training", false, []string{"agent", "cluster", "ddqn", "env"},
		"training stands above the agent, so that a program which only uses a policy does not link what trains it"},
	{"lab/evaluation", false, []string{"agent", "agent/baseline", "cluster", "ddqn", "env"},
		"what judges policies takes them as they are, however they were trained"},
	{"agent/export", false, []string{"cluster"},
		"handing sizes to a trainer must work whichever policy found them"},
	{"env", false, []string{"cluster"},
		"the problem must not know who solves it, or agents could not be compared on it"},
	{"ddqn", false, nil,
		"the learner gets rows, actions and rewards: one that knew clusters could not be tested on problems with known answers"},
	{"cluster", false, nil,
		"what a cluster is stands below everything that is done with it"},
	{"cluster/clusterfile", false, []string{"cluster", "cluster/profile"},
		"a file becomes a cluster; what works on clusters needs no parser"},
	{"cluster/profile", false, nil,
		"measurements come before clusters; a user's tools read them alone"},
	{"bucket", false, nil,
		"length buckets concern a data set, not a cluster"},
	{"checkpoint", false, nil,
		"slots hold bytes; what a layer is concerns the trainer"},
	{"train", false, []string{"checkpoint", "cluster"},
		"the trainer is what agents serve, so it must not need one"},
	{"planner", false, []string{"cluster", "train"},
		"a plan places a model on nodes; the sizes found later are not its input"},
	{"planner/search", false, nil,
		"the search serves every cost function, those of other planners too, so it knows neither models nor clusters"},
	{"planner/pipeline", false, nil,
		"a schedule is simulated from times alone, whoever predicted or measured them"},
	{"planner/layerprofile", false, nil,
		"measurements come before plans; a profiler writes them without knowing either"},
	{"planner/costmodel", false, []string{"cluster", "planner/layerprofile", "planner/pipeline", "planner/search"},
		"costs follow from a profile, a cluster and options; plans and their files stand above"},
	{"planner/bound", false, []string{"cluster", "planner/costmodel", "planner/layerprofile"},
		"a bound follows from costs alone: one that knew how plans are found could not judge them"},
	{"planner/refine", false, []string{"planner/costmodel"},
		"refining prices stages and knows neither plan files nor how its first plans were found"},
	{"forward", false, []string{"cluster", "train"},
		"forward-only training is another trainer on the same clusters"},
	{"serve", false, []string{"agent", "cluster"},
		"the service joins the controller with the rounds of real jobs; it holds the clock and the network, so that what decides needs neither"},
	{"internal", false, nil,
		"a small helper of several rooms can belong to none of them"},
	{"internal/agenttest", false, []string{"agent/clusters", "cluster", "env"},
		"tests of several rooms share its clusters and reports"},
	{"internal/figure", false, []string{"cluster/profile", "planner"},
		"figures show what the core made, so they stand above it: a program that uses the core must not link fonts and renderers"},
	{"internal/runlog", false, []string{"cluster"},
		"the run log holds clusters and reports, so it stands above cluster and only commands use it"},
}

// roomOf finds the room of a package, given without the module's path.
func roomOf(pkg string) (room, bool) {
	var found room
	for _, r := range rooms {
		if within(pkg, r.folder) && len(r.folder) > len(found.folder) {
			found = r
		}
	}
	return found, found.folder != ""
}

func within(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

// forbidden says why a package must not import another, "" if it may.
func forbidden(from, to string) string {
	a, known := roomOf(from)
	b, alsoKnown := roomOf(to)
	switch {
	case !known, !alsoKnown:
		return fmt.Sprintf("%s imports %s, but one of them is in no room: add it to the rules, with its reason", from, to)
	case b.folder == "internal":
		return ""
	case a.folder == b.folder && !a.apart, a.folder != b.folder && within(b.folder, a.folder) && a.folder != "internal":
		return ""
	// Who stands within a room names its neighbours there one by one.
	case slices.ContainsFunc(a.uses, func(u string) bool { return b.folder == u || within(to, u) && !within(a.folder, u) }):
		return ""
	}
	return fmt.Sprintf("%s must not import %s: %s", from, to, a.why)
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		from, to string
		may      bool
	}{
		{"cmd/evenkeel", "agent/export", true}, {"cmd/evenkeel", "cmd/evenkeel/internal/run", true},
		{"cmd/evenkeel/internal/run", "cmd/evenkeel/internal/cli", true}, {"cmd/evenkeel/internal/run", "internal/runlog", true},
		{"cmd/evenkeel/internal/run", "cmd/evenkeel/internal/plan", false}, {"cmd/evenkeel/internal/cli", "cmd/evenkeel/internal/run", false}, {"experiments/x", "cmd/evenkeel/internal/cli", false},
		{"experiments/x", "ddqn", true}, {"agent", "cluster/sim", true},
		{"agent", "internal/chart", true}, {"cluster", "cluster/profile", true}, {"cluster/sim", "cluster", true},
		{"agent", "agent/export", true}, {"agent/export", "cluster", true}, {"train", "checkpoint", true},
		{"cluster/profile", "internal/chart", true}, {"planner", "train", true}, {"planner", "planner/costmodel", true}, {"planner/costmodel", "planner", false}, {"planner/search", "planner/costmodel", false}, {"internal/a", "internal/b", true},
		{"ddqn", "cluster", false}, {"env", "agent", false}, {"cluster", "env", false}, {"internal/chart", "cluster", false},
		{"agent", "cmd/evenkeel", false}, {"cmd/evenkeel", "cmd/other", false}, {"cmd/evenkeel", "experiments/x", false},
		{"experiments/x", "experiments/y", false}, {"experiments/x", "experiments/internal/y", true},
		{"cmd/evenkeel", "bucket", false}, {"agent", "internal/runlog", false}, {"cmd/evenkeel/internal/run", "internal/figure", true}, {"planner", "internal/figure", false},
		{"cluster/profile", "internal/figure", false}, {"internal/figure", "planner", true}, {"internal/chart", "internal/runlog", false}, {"agent/export", "agent", false},
		{"lab/evaluation", "agent/baseline", true}, {"lab/evaluation", "lab/training", false}, {"lab/training", "agent", true}, {"agent", "lab/training", false}, {"lab/training", "cluster/sim", true}, {"agent/export", "ddqn", false},
		{"cluster/profile", "cluster", false}, {"bucket", "cluster", false}, {"attic", "cluster", false}, {"cmd/evenkeel", "attic", false},
	} {
		if why := forbidden(c.from, c.to); (why == "") != c.may {
			t.Errorf("%s importing %s: may %v, got %q", c.from, c.to, c.may, why)
		}
	}
}

// deciding are the folders whose results must be functions of their input.
var deciding = []string{"agent", "bucket", "cluster", "ddqn", "env", "lab", "planner"}

// acting are the folders within them that carry out what was decided, with the clock and the network.
var acting = []string{"planner/execute"}

const decidingWhy = "what decides is a function of its input: a seed and an input reproduce a run bit for bit"

// impureImports may not appear in what decides.
var impureImports = []string{"crypto/rand", "math/rand", "net", "net/http", "os/exec"}

// impureTime is what of package time reads or waits for the clock. Time comes in as an
// argument, as CompareConfig.Clock does.
var impureTime = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// pureRand is what of math/rand/v2 does not use the global source.
var pureRand = []string{"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewZipf", "PCG", "Rand", "Source", "Zipf"}
