{{/* What the names of the release's objects begin with: fullnameOverride, or the release's name with `hbox` (nameOverride) unless it contains that. */}}
{{- define "hbox.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "hbox.labels" -}}
app.kubernetes.io/name: hbox
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: hbox
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Arguments: [root, component] */}}
{{- define "hbox.selector" -}}
app.kubernetes.io/name: hbox
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The profile's values, as YAML; the chart's values override them. */}}
{{- define "hbox.profile" -}}
{{- $small := dict "paired" 1 "brokers" 1 "persistent" true "keep" false "networkPolicy" true "priorityClassName" "" "queues" "open" "cpu" "100m" "memory" "192Mi" "limit" "2Gi" -}}
{{- $profiles := dict
  "small" $small
  "airgap" $small
  "dev" (mergeOverwrite (deepCopy $small) (dict "persistent" false "networkPolicy" false "cpu" "10m" "memory" "96Mi" "limit" "1Gi"))
  "production" (mergeOverwrite (deepCopy $small) (dict "paired" 2 "brokers" 3 "keep" true "priorityClassName" "system-cluster-critical" "queues" "bound" "cpu" "500m" "memory" "512Mi" "limit" "8Gi"))
-}}
{{- if not (hasKey $profiles .Values.profile) }}{{ fail (printf "profile: %q is none of dev, small, production, airgap" .Values.profile) }}{{ end -}}
{{- if and (eq .Values.profile "airgap") (not .Values.global.imageRegistry) }}{{ fail "profile airgap: global.imageRegistry names the registry inside, such as registry.example.com/mirror" }}{{ end -}}
{{- get $profiles .Values.profile | toYaml -}}
{{- end -}}

{{/* Arguments: [registry, repository, tag, digest] */}}
{{- define "hbox.imageOf" -}}
{{- $at := ternary (printf "@%s" (index . 3)) (printf ":%s" (index . 2)) (ne (index . 3) "") -}}
{{- with index . 0 }}{{ . | trimSuffix "/" }}/{{ end }}{{ index . 1 }}{{ $at }}
{{- end -}}

{{- define "hbox.image" -}}
{{- include "hbox.imageOf" (list .Values.global.imageRegistry .Values.image.repository (default .Chart.AppVersion .Values.image.tag) .Values.image.digest) -}}
{{- end -}}

{{- define "hbox.natsImage" -}}
{{- with .Values.nats.image }}
{{- if .repository }}{{ include "hbox.imageOf" (list $.Values.global.imageRegistry .repository .tag .digest) }}{{ else }}{{ include "hbox.image" $ }}{{ end }}
{{- end -}}
{{- end -}}

{{/* By default, pods that run where pod security is `restricted`. */}}
{{- define "hbox.podSecurity" -}}
{{- toYaml .Values.pods.podSecurityContext -}}
{{- end -}}

{{/* Priority class and nodes of a pod. Arguments: [root, the values of its service or nil, its selector, its replicas, keys of the topologies over which several
replicas are spread]. The service's values replace those of `pods`. */}}
{{- define "hbox.placement" -}}
{{- $root := index . 0 }}{{ $pods := $root.Values.pods }}{{ $own := default dict (index . 1) }}{{ $selector := index . 2 }}
{{- with ternary (include "hbox.profile" $root | fromYaml).priorityClassName $pods.priorityClassName (kindIs "invalid" $pods.priorityClassName) }}
priorityClassName: {{ . }}
{{- end }}
{{- with default $pods.nodeSelector $own.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with default $pods.tolerations $own.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with default $pods.affinity $own.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- $spread := list }}
{{- if gt (int (index . 3)) 1 }}{{ range index . 4 }}{{ $spread = append $spread (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway") }}{{ end }}{{ end }}
{{- if not (kindIs "invalid" $pods.topologySpreadConstraints) }}{{ $spread = $pods.topologySpreadConstraints }}{{ end }}
{{- if not (kindIs "invalid" $own.topologySpreadConstraints) }}{{ $spread = $own.topologySpreadConstraints }}{{ end }}
{{- with $spread }}
topologySpreadConstraints:
{{- range . }}
- {{ merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" ($selector | fromYaml))) | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Environment, mounts and volumes that `pods` and a service add. Arguments: [root, the values of the service or nil, extraEnv, extraVolumeMounts or extraVolumes]. */}}
{{- define "hbox.extra" -}}
{{- with concat (get (index . 0).Values.pods (index . 2)) (get (default dict (index . 1)) (index . 2) | default list) }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{- define "hbox.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Arguments: [root, the service's values or nil, default CPU and memory requests, default memory limit]. `pods.resources` overrides the defaults,
the service's values override both. Defaults always render to the same text, because a changed pod template restarts brokers. */}}
{{- define "hbox.resources" -}}
{{- $all := deepCopy (default dict (index . 0).Values.pods.resources) -}}
{{- $own := index . 1 -}}
{{- if not (kindIs "invalid" $own) }}{{ mergeOverwrite $all (deepCopy $own) | toYaml }}
{{- else if $all }}{{ mergeOverwrite (dict "requests" (dict "cpu" (index . 2) "memory" (index . 3)) "limits" (dict "memory" (index . 4))) $all | toYaml }}
{{- else -}}
requests: {cpu: {{ index . 2 }}, memory: {{ index . 3 }}}
limits: {memory: {{ index . 4 }}}
{{- end -}}
{{- end -}}

{{- define "hbox.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Replicas of each stream: all of the chart's brokers, or nats.replicas of an external broker. */}}
{{- define "hbox.brokers" -}}
{{- $own := ternary (include "hbox.profile" . | fromYaml).brokers 1 .Values.nats.enabled -}}
{{- $replicas := int (ternary $own .Values.nats.replicas (kindIs "invalid" .Values.nats.replicas)) -}}
{{- if and .Values.nats.enabled (gt $replicas 1) (not .Values.nats.closed) }}{{ fail "nats.replicas: several brokers let each other in by a password that comes with the users' keys: nats.closed has to be true" }}{{ end -}}
{{- $replicas -}}
{{- end -}}

{{/* Address of the broker; empty if a Secret holds it. With TLS the name in its certificate. */}}
{{- define "hbox.natsUrl" -}}
{{- if and .Values.nats.enabled .Values.nats.tls.secret }}tls://{{ include "hbox.name" . }}-nats.{{ .Release.Namespace }}.svc:4222
{{- else if .Values.nats.enabled }}nats://{{ include "hbox.name" . }}-nats:4222
{{- else if .Values.nats.secret.name }}
{{- else }}{{ required "nats.enabled is false: nats.externalUrl or nats.secret.name must name the broker" .Values.nats.externalUrl }}{{ end -}}
{{- end -}}

{{/* The users of the broker, as `hbox_common.bus.users` has them. */}}
{{- define "hbox.busUsers" -}}
{{- list "topology-collector" "job-controller" "scheduler-core" "quota-ledger" "binder" "health-monitor" "node-agent" "console" "hbox-cli" "hbox-orders" "admin" "callout" | toYaml -}}
{{- end -}}

{{/* true: the broker admits each agent and node-remedy by the token of its pod, for its own node only. The API server names the node from Kubernetes 1.30 on. */}}
{{- define "hbox.agentsByNode" -}}
{{- $users := ne (include "hbox.busSecrets" .) "" -}}
{{- if and .Values.nats.agentsByNode (not (and $users (include "hbox.natsUrl" .))) }}{{ fail "nats.agentsByNode: the broker needs users: nats.closed, and for a broker of your own nats.usersPrefix and nats.externalUrl" }}{{ end -}}
{{- $usual := and .Values.nats.enabled $users (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- and (or (index .Values.services "node-agent").enabled (index .Values.services "node-remedy").enabled) (ternary $usual .Values.nats.agentsByNode (kindIs "invalid" .Values.nats.agentsByNode)) -}}
{{- end -}}

{{/* Readers, as words of a command. */}}
{{- define "hbox.busReaders" -}}
{{- range $name := keys .Values.nats.readers | sortAlpha }}, --reader, {{ printf "%s=%s" $name (join "," (get $.Values.nats.readers $name)) | quote }}{{ end -}}
{{- end -}}

{{/* What the Secrets with the users' keys are called, before the user's name; empty where the broker is open. */}}
{{- define "hbox.busSecrets" -}}
{{- if not .Values.nats.closed }}{{ else if .Values.nats.enabled }}{{ include "hbox.name" . }}-bus{{ else }}{{ .Values.nats.usersPrefix }}{{ end -}}
{{- end -}}

{{/* The Secret with the token of metrics with names; empty: these are closed. */}}
{{- define "hbox.metricsToken" -}}
{{- if .Values.podMonitor.token.name }}{{ .Values.podMonitor.token.name }}{{ else if .Values.podMonitor.enabled }}{{ include "hbox.name" . }}-metrics{{ end -}}
{{- end -}}

{{/* The shards that `shards` names, as the services read it (`hbox_common.model.shards`); one without a name where there is one. */}}
{{- define "hbox.shards" -}}
{{- $text := toString .Values.shards -}}
{{- $names := list -}}
{{- if regexMatch "^[0-9]+$" $text }}{{ if ne (int $text) 1 }}{{ range until (int $text) }}{{ $names = append $names (toString .) }}{{ end }}{{ end -}}
{{- else }}{{ range splitList ";" $text }}{{ with trim (splitList "=" . | first) }}{{ $names = append $names . }}{{ end }}{{ end }}{{ end -}}
{{- $names | default (list "") | toYaml -}}
{{- end -}}

{{/* What schedulers and their leases are called. */}}
{{- define "hbox.schedulers" -}}
{{- $names := list -}}
{{- range include "hbox.shards" . | fromYamlArray }}{{ $names = append $names (ternary (printf "scheduler-core-%s" .) "scheduler-core" (ne . "")) }}{{ end -}}
{{- $names | toYaml -}}
{{- end -}}

{{/* Verbs that node-remedy executes, or reports as a dry run. */}}
{{- define "hbox.verbs" -}}
{{- $verbs := list -}}
{{- range $verb, $rule := dig "settings" "verbs" (dict) . }}{{ if ne (get $rule "mode") "off" }}{{ $verbs = append $verbs $verb }}{{ end }}{{ end -}}
{{- $verbs | join "," -}}
{{- end -}}

{{/* The settings file of all services. */}}
{{- define "hbox.settings" -}}
{{- $all := deepCopy .Values.settings -}}
{{- with include "hbox.natsUrl" . }}{{ $_ := set $all "nats_url" . }}{{ end -}}
{{- with int (include "hbox.brokers" .) }}{{ if gt . 1 }}{{ $_ := set $all "nats_replicas" . }}{{ end }}{{ end -}}
{{- if .Values.deviceConfig }}{{ $_ := set $all "device_config" "/etc/hbox/devices/device-config.yaml" }}{{ end -}}
{{- range $name, $service := .Values.services -}}
{{- $own := deepCopy (default dict $service.settings) -}}
{{- if eq $name "node-agent" }}{{ $_ := set $own "kubelet_root" $service.kubeletRoot }}{{ if $service.kubeletConfig }}{{ $_ := set $own "kubelet_config" "/host/kubelet-config/config.yaml" }}{{ end }}{{ $nvml := default dict $service.nvml }}{{ if $nvml.enabled }}{{ $_ := set $own "nvml" true }}{{ if $nvml.folder }}{{ $_ := set $own "nvml_library" "/host/nvml" }}{{ end }}{{ if $nvml.events }}{{ $_ := set $own "nvml_events" true }}{{ end }}{{ end }}{{ if (default dict $service.kernelLog).enabled }}{{ $_ := set $own "kernel_log" true }}{{ end }}{{ end -}}
{{- if and (eq $name "node-remedy") $service.enabled }}{{ $_ := set $own "enter" (list "nsenter" "--target" "1" "--mount" "--uts" "--ipc" "--net" "--") }}{{ end -}}
{{- $remedy := index $.Values.services "node-remedy" -}}
{{- if and (eq $name "health-monitor") $remedy.enabled (not (hasKey $own "remedies")) }}{{ $_ := set $own "remedies" (include "hbox.verbs" $remedy) }}{{ end -}}
{{- if eq $name "admission" }}{{ if $.Values.sizes }}{{ $_ := set $own "sizes_file" "/etc/hbox/sizes/sizes.yaml" }}{{ end -}}
{{- with (index $.Values.services "job-controller").settings }}{{ if and .scheduler_names (not (hasKey $own "scheduler_names")) }}{{ $_ := set $own "scheduler_names" .scheduler_names }}{{ end }}{{ end }}{{ end -}}
{{- if has $name (list "scheduler-core" "quota-ledger") }}{{ if $.Values.policy }}{{ $_ := set $own "scheduler_conf" "/etc/hbox/files/volcano-scheduler.conf" }}{{ end }}{{ end -}}
{{- if and (eq $name "binder") $.Values.gate.namespace }}{{ $_ := set $own "gate_namespace" $.Values.gate.namespace }}{{ end -}}
{{- if and (eq $name "health-monitor") $.Values.healthRules }}{{ $_ := set $own "rules_folder" "/etc/hbox/health-rules" }}{{ end -}}
{{- if has $name (list "job-controller" "scheduler-core") }}{{ if $.Values.shards }}{{ $_ := set $own "shards" (toString $.Values.shards) }}{{ end }}{{ end -}}
{{- $queues := (include "hbox.profile" $ | fromYaml).queues -}}
{{- if and (eq $name "quota-ledger") (ne $queues "open") (not (hasKey $own "queues")) }}{{ $_ := set $own "queues" $queues }}{{ end -}}
{{- if and (eq $name "job-controller") (not (hasKey $own "system_namespaces")) }}{{ $_ := set $own "system_namespaces" (append $.Values.admission.guardedNamespaces $.Release.Namespace | uniq | join ",") }}{{ end -}}
{{- if eq $name "topology-collector" }}{{ if $.Values.pools }}{{ $_ := set $own "pools_file" "/etc/hbox/files/pools.yaml" }}{{ end }}{{ end -}}
{{- if eq $name "topology-collector" }}{{ if $.Values.fabric.sources }}{{ $_ := set $own "fabrics_file" "/etc/hbox/files/fabrics.yaml" }}{{ end }}{{ end -}}
{{- if eq $name "topology-collector" }}{{ with index $.Values.services "node-agent" }}{{ if .enabled -}}
{{- if not (hasKey $own "agent_wait_s") }}{{ $_ := set $own "agent_wait_s" 90 }}{{ end -}}
{{- $terms := list }}{{ range $key, $value := .nodeSelector }}{{ $terms = append $terms (printf "%s=%s" $key $value) }}{{ end -}}
{{- if $terms }}{{ $_ := set $own "agent_nodes" (join "," $terms) }}{{ end -}}
{{- end }}{{ end }}{{ end -}}
{{- if $own }}{{ $_ := set $all $name $own }}{{ end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* How clients reach the HTTP API. */}}
{{- define "hbox.consoleUrl" -}}
{{- default (printf "https://%s-console.%s.svc" (include "hbox.name" .) .Release.Namespace) .Values.console.url -}}
{{- end -}}

{{/* The names of its own certificate. */}}
{{- define "hbox.consoleNames" -}}
{{- $dns := printf "%s-console.%s.svc" (include "hbox.name" .) .Release.Namespace -}}
{{- list $dns (get (urlParse (include "hbox.consoleUrl" .)) "host" | splitList ":" | first) "localhost" | uniq | join "," -}}
{{- end -}}
