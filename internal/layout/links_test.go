package layout

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	inlineLink = regexp.MustCompile(`\]\(<?([^()\s<>]+)>?(?:\s+"[^"]*")?\)`)
	refLink    = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s+<?([^\s<>]+)`)
	heading    = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)\s*#*$`)
	namedHTML  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	scheme     = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
	// A page of docs named outside Markdown: in comments, messages and help.
	namedPage = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/.-]+\.(?:md|svg)\b`)
)

// tracked are the repository's files with one of the endings, slash-separated: no output
// of builds, nothing below testdata.
func tracked(t *testing.T, endings ...string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "testdata", "dist", "shared"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.Contains(endings, filepath.Ext(path)) {
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			out = append(out, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prose blanks the fenced code blocks of a page; the lines keep their numbers.
func prose(text string) string {
	fence := ""
	out := strings.Split(text, "\n")
	for i, l := range out {
		trimmed := strings.TrimLeft(l, " >")
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, fence[:1]+" ") == "" {
				fence = ""
			}
			out[i] = ""
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			mark := trimmed[:1]
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, mark))]
			out[i] = ""
		}
	}
	return strings.Join(out, "\n")
}

// slug is the anchor that GitHub gives a heading.
func slug(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// anchors are those that a page offers.
func anchors(text string) map[string]bool {
	out, seen := map[string]bool{}, map[string]int{}
	for _, l := range strings.Split(prose(text), "\n") {
		if m := heading.FindStringSubmatch(l); m != nil {
			s := slug(m[1])
			if n := seen[s]; n > 0 {
				out[s+"-"+strconv.Itoa(n)] = true
			} else {
				out[s] = true
			}
			seen[s]++
		}
		for _, m := range namedHTML.FindAllStringSubmatch(l, -1) {
			out[m[1]] = true
		}
	}
	return out
}

// Every relative link of every page leads to something, its anchor too.
func TestLinks(t *testing.T) {
	pages := tracked(t, ".md")
	if len(pages) < 40 {
		t.Fatalf("%d pages: not the repository", len(pages))
	}
	offered := map[string]map[string]bool{}
	for _, page := range pages {
		offered[page] = anchors(read(t, page))
	}
	for _, page := range pages {
		text := codeSpan.ReplaceAllStringFunc(prose(read(t, page)), func(s string) string { return strings.Repeat("`", len(s)) })
		for _, re := range []*regexp.Regexp{inlineLink, refLink} {
			for _, m := range re.FindAllStringSubmatchIndex(text, -1) {
				link, line := text[m[2]:m[3]], 1+strings.Count(text[:m[0]], "\n")
				if scheme.MatchString(link) {
					continue
				}
				if why := broken(page, link, offered); why != "" {
					t.Errorf("%s:%d: link %s: %s", page, line, link, why)
				}
			}
		}
	}
}

// broken says what is wrong with a page's link, "" if nothing.
func broken(page, link string, offered map[string]map[string]bool) string {
	name, anchor, _ := strings.Cut(link, "#")
	to := page
	if name != "" {
		to = filepath.ToSlash(filepath.Join(filepath.Dir(page), name))
	}
	if strings.HasPrefix(to, "../") || strings.HasPrefix(name, "/") {
		return "leads out of the repository"
	}
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
		return "no such file"
	}
	if anchor != "" && filepath.Ext(to) == ".md" && !offered[to][anchor] {
		return "no such heading"
	}
	return ""
}

// The pages that code names are there.
func TestNamedPages(t *testing.T) {
	for _, name := range tracked(t, ".go", ".py", ".yaml", ".yml", ".json") {
		text := read(t, name)
		for _, m := range namedPage.FindAllStringIndex(text, -1) {
			page := text[m[0]:m[1]]
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(page))); err != nil {
				t.Errorf("%s:%d: there is no %s", name, 1+strings.Count(text[:m[0]], "\n"), page)
			}
		}
	}
}

// What pages call PACKAGE.Name is there, so that a page does not outlive a name.
func TestNamedIdentifiers(t *testing.T) {
	exported := map[string]map[string]bool{}
	for _, f := range load(t) {
		top, _, _ := strings.Cut(f.pkg, "/")
		if f.test() || slices.Contains([]string{"cmd", "experiments"}, top) {
			continue
		}
		names := exported[f.ast.Name.Name]
		if names == nil {
			names = map[string]bool{}
			exported[f.ast.Name.Name] = names
		}
		for _, name := range declared(f.ast) {
			names[name] = true
		}
	}
	called := regexp.MustCompile(`(?:^|[^.\w])([a-z]+)\.([A-Z]\w*)`)
	for _, page := range tracked(t, ".md") {
		// Decisions are not rewritten, so they may name what was.
		if strings.HasPrefix(page, "docs/decisions/") || !strings.HasPrefix(page, "docs/") && page != "README.md" && page != "CONTRIBUTING.md" {
			continue
		}
		text := read(t, page)
		for _, m := range called.FindAllStringSubmatchIndex(text, -1) {
			pkg, name := text[m[2]:m[3]], text[m[4]:m[5]]
			if names, ours := exported[pkg]; ours && !names[name] {
				t.Errorf("%s:%d: there is no %s.%s", page, 1+strings.Count(text[:m[0]], "\n"), pkg, name)
			}
		}
	}
}

// declared are the names that a file declares for its package.
func declared(f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				out = append(out, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					out = append(out, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

func TestSlug(t *testing.T) {
	for title, want := range map[string]string{
		"Devices, machines and switches":  "devices-machines-and-switches",
		"The `collect` block":             "the-collect-block",
		"What a [page](x.md) says: twice": "what-a-page-says-twice",
		"Before 1.0":                      "before-10",
	} {
		if got := slug(title); got != want {
			t.Errorf("slug(%q) = %q, want %q", title, got, want)
		}
	}
	text := "# One\n```\n# not\n```\n## One\n"
	if a := anchors(text); !a["one"] || !a["one-1"] || a["not"] || len(a) != 2 {
		t.Errorf("anchors %v", a)
	}
	if why := broken("a/b.md", "../../x.md", nil); why == "" {
		t.Error("a link out of the repository passes")
	}
}
