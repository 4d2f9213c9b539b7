package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kustomization and serviceMonitor are as much of these kinds as the files use, which k8s.io/api does not have.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Namespace  string   `json:"namespace"`
	Resources  []string `json:"resources"`
	Images     []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
}

type serviceMonitor struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Scheme        string `json:"scheme"`
			Path          string `json:"path"`
			Interval      string `json:"interval"`
			HonorLabels   bool   `json:"honorLabels"`
			Authorization struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
			TLSConfig struct {
				ServerName string `json:"serverName"`
				CA         struct {
					Secret corev1.SecretKeySelector `json:"secret"`
				} `json:"ca"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// documents reads the YAML documents of a file.
func documents(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n---\n")
}

// strict reads a document as the API server does under strict field validation.
func strict(text string, out any) error {
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return err
	}
	faults, err := json.UnmarshalStrict(data, out)
	return errors.Join(append(faults, err)...)
}

// decode reads one document strictly: a field that its kind does not have is an error that names it.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var out T
	if err := strict(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func one[T any](t *testing.T, name string) T {
	t.Helper()
	all := documents(t, name)
	if len(all) != 1 {
		t.Fatalf("%s: %d documents", name, len(all))
	}
	return decode[T](t, all[0])
}

func within(labels, of map[string]string) bool {
	for k, v := range labels {
		if of[k] != v {
			return false
		}
	}
	return len(labels) > 0
}

// mounted says whether every mount of a container has its volume.
func mounted(t *testing.T, c *corev1.Container, volumes []string) {
	t.Helper()
	for _, m := range c.VolumeMounts {
		if !slices.Contains(volumes, m.Name) {
			t.Errorf("%s: no volume %s", c.Name, m.Name)
		}
	}
}

// The manifests are what Kubernetes reads, and fit each other.
func TestKubernetes(t *testing.T) {
	k := one[kustomization](t, "kustomization.yaml")
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f = filepath.Base(f); f != "kustomization.yaml" && f != "training-job.yaml" && !slices.Contains(k.Resources, f) {
			t.Errorf("%s is not in the kustomization", f)
		}
	}
	if space := one[corev1.Namespace](t, "namespace.yaml"); space.Name != k.Namespace {
		t.Errorf("%s", space.Name)
	}
	set := one[appsv1.StatefulSet](t, "statefulset.yaml")
	labels := set.Spec.Template.Labels
	pod := &set.Spec.Template.Spec
	c := &pod.Containers[0]
	service := one[corev1.Service](t, "service.yaml")
	budget := one[policyv1.PodDisruptionBudget](t, "poddisruptionbudget.yaml")
	policy := one[networkingv1.NetworkPolicy](t, "networkpolicy.yaml")
	monitor := one[serviceMonitor](t, "servicemonitor.yaml")
	for what, selector := range map[string]map[string]string{
		"set": set.Spec.Selector.MatchLabels, "service": service.Spec.Selector, "budget": budget.Spec.Selector.MatchLabels, "policy": policy.Spec.PodSelector.MatchLabels,
	} {
		if !within(selector, labels) {
			t.Errorf("%s selects %v, the pods have %v", what, selector, labels)
		}
	}
	if !within(monitor.Spec.Selector.MatchLabels, service.Labels) || set.Spec.ServiceName != service.Name {
		t.Error("the monitor, or the set, has another service")
	}
	if port := c.Ports[0]; service.Spec.Ports[0].TargetPort.StrVal != port.Name || policy.Spec.Ingress[0].Ports[0].Port.StrVal != port.Name || monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Errorf("ports: %+v", port)
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
			t.Errorf("%+v", probe.HTTPGet)
		}
	}
	if *set.Spec.Replicas != 1 || budget.Spec.MaxUnavailable.IntValue() != 1 || !monitor.Spec.Endpoints[0].HonorLabels {
		t.Error("replicas, budget or labels")
	}
	if s, p := c.SecurityContext, pod.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !*p.RunAsNonRoot || s.Capabilities.Drop[0] != "ALL" || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Error("the pod is not restricted")
	}
	volumes := []string{set.Spec.VolumeClaimTemplates[0].Name}
	secrets := []string{}
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
		secrets = append(secrets, v.Secret.SecretName)
	}
	mounted(t, c, volumes)
	if e := monitor.Spec.Endpoints[0]; !slices.Contains(secrets, e.Authorization.Credentials.Name) || !slices.Contains(secrets, e.TLSConfig.CA.Secret.Name) {
		t.Errorf("%+v: secrets are %v", e, secrets)
	}
	for _, arg := range c.Args {
		if path, ok := strings.CutPrefix(arg[strings.Index(arg, "=")+1:], "/"); ok && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix("/"+path, m.MountPath+"/") }) {
			t.Errorf("%s lies in no volume", arg)
		}
	}
	known(t, c.Args)
}

// known says whether flags of evenkeel serve are in the reference.
func known(t *testing.T, args []string) {
	t.Helper()
	reference, err := os.ReadFile("../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(reference), "\n## evenkeel serve\n")
	section, _, _ = strings.Cut(section, "\n## ")
	flag := regexp.MustCompile(`^--[a-z-]+`)
	for _, arg := range args {
		if f := flag.FindString(arg); f != "" && !strings.Contains(section, "`"+f+"=") && !strings.Contains(section, "`"+f+"`") {
			t.Errorf("evenkeel serve has no flag %s", f)
		}
	}
	if args[0] != "serve" {
		t.Errorf("%v", args)
	}
}

// A training job finds the service with an address and a token, and is let in.
func TestTrainingJob(t *testing.T) {
	all := documents(t, "training-job.yaml")
	if len(all) != 2 {
		t.Fatal(len(all))
	}
	names := decode[corev1.Service](t, all[0])
	job := decode[batchv1.Job](t, all[1])
	pod := &job.Spec.Template
	c := &pod.Spec.Containers[0]
	if *job.Spec.CompletionMode != batchv1.IndexedCompletion || *job.Spec.Completions != *job.Spec.Parallelism || len(pod.Spec.Containers) != 1 {
		t.Errorf("%+v", job.Spec)
	}
	if names.Spec.ClusterIP != corev1.ClusterIPNone || names.Name != pod.Spec.Subdomain || names.Spec.Selector["job-name"] != job.Name || !strings.Contains(c.Args[0], job.Name+"-0."+names.Name) {
		t.Error("the pods do not find each other")
	}
	policy := one[networkingv1.NetworkPolicy](t, "networkpolicy.yaml")
	if !within(policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels, pod.Labels) {
		t.Errorf("%v is not let in", pod.Labels)
	}
	var set []string
	for _, e := range c.Env {
		set = append(set, e.Name)
		if service := one[corev1.Service](t, "service.yaml"); e.Name == "EVENKEEL_URL" && e.Value != "https://"+service.Name+"."+one[kustomization](t, "kustomization.yaml").Namespace+".svc:7070" {
			t.Error(e.Value)
		}
		if e.Name == "EVENKEEL_TOKEN" && (e.Value != "" || e.ValueFrom.SecretKeyRef.Name == "") {
			t.Error("the token is in the manifest")
		}
	}
	if !slices.Equal(set, []string{"EVENKEEL_URL", "EVENKEEL_JOB", "EVENKEEL_TOKEN", "EVENKEEL_CA"}) {
		t.Errorf("%v", set)
	}
	mounted(t, c, []string{pod.Spec.Volumes[0].Name})
}

// A misspelt field is found and named.
func TestStrict(t *testing.T) {
	text := strings.Replace(documents(t, "statefulset.yaml")[0], "readOnlyRootFilesystem", "readOnlyRootFileSystem", 1)
	var set appsv1.StatefulSet
	if err := strict(text, &set); err == nil || !strings.Contains(err.Error(), "readOnlyRootFileSystem") {
		t.Error(err)
	}
}
