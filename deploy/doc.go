// Package deploy holds what to run the control service with: a systemd unit, a container file, Kubernetes manifests, alert rules and a dashboard. Its
// tests hold them to what they are for; they are a module of their own, since Evenkeel needs none of their dependencies.
package deploy
