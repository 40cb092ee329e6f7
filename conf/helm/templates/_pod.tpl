{{/* What a container may do: a list of its `image` and the capabilities that it has. */}}
{{- define "oxigress.securityContext" -}}
{{- $image := index . 0 -}}
runAsNonRoot: {{ $image.runAsNonRoot }}
runAsUser: {{ int $image.runAsUser }}
runAsGroup: {{ int $image.runAsGroup }}
allowPrivilegeEscalation: {{ $image.allowPrivilegeEscalation }}
readOnlyRootFilesystem: {{ $image.readOnlyRootFilesystem }}
capabilities:
  drop: [ALL]
  {{- with index . 1 }}
  add: {{ toJson . }}
  {{- end }}
{{- with $image.seccompProfile }}
seccompProfile:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The environment of both roles. */}}
{{- define "oxigress.environment" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- with .Values.controller.extraEnvs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "oxigress.pod" -}}
{{- $c := .Values.controller -}}
metadata:
  # Without the labels of a version: a replica knows the others by its own labels, also while they are replaced.
  labels:
    {{- mustMergeOverwrite (include "oxigress.selector" (list . "controller") | fromYaml) .Values.commonLabels $c.labels $c.podLabels | toYaml | nindent 4 }}
  {{- with $c.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "oxigress.serviceAccount" . }}
  # nginx, which meets the clients, gets no token; the controller's container mounts one below.
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ int $c.terminationGracePeriodSeconds }}
  dnsPolicy: {{ $c.dnsPolicy }}
  {{- with $c.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $c.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $c.hostname }}
  hostname: {{ . }}
  {{- end }}
  {{- if $c.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- if $c.shareProcessNamespace }}
  shareProcessNamespace: true
  {{- end }}
  {{- with $c.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $c.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- /* Opens low ports to nginx without a privilege, on every container runtime. The API server refuses it on the host's network, where the
    capability that the program's file permits has to do: docs/operate/pod.md. */}}
  {{- $sysctls := dict }}
  {{- if not $c.hostNetwork }}
  {{- $lowest := min (int $c.containerPort.http) (int $c.containerPort.https) }}
  {{- range $ports := list .Values.tcp .Values.udp }}
  {{- range $port, $_ := $ports }}
  {{- $lowest = min $lowest (int $port) }}
  {{- end }}
  {{- end }}
  {{- if lt $lowest 1024 }}
  {{- $_ := set $sysctls "net.ipv4.ip_unprivileged_port_start" (toString $lowest) }}
  {{- end }}
  {{- end }}
  {{- $sysctls = mergeOverwrite $sysctls $c.sysctls }}
  {{- $context := deepCopy $c.podSecurityContext }}
  {{- if $sysctls }}
  {{- $list := list }}
  {{- range $name, $value := $sysctls }}
  {{- $list = append $list (dict "name" $name "value" (toString $value)) }}
  {{- end }}
  {{- $_ := set $context "sysctls" (concat $list ($context.sysctls | default list)) }}
  {{- end }}
  {{- with $context }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $c.extraInitContainers }}
  initContainers:
    {{- tpl (toYaml .) $ | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ $c.containerName }}
      image: {{ include "oxigress.controllerImage" . | quote }}
      imagePullPolicy: {{ $c.image.pullPolicy }}
      args:
        {{- include "oxigress.arguments" (list . "controller") | nindent 8 }}
      env:
        {{- include "oxigress.environment" . | nindent 8 }}
      ports:
        - name: {{ $c.metrics.portName }}
          containerPort: {{ int $c.metrics.port }}
        {{- if $c.admissionWebhooks.enabled }}
        - name: webhook
          containerPort: {{ int $c.admissionWebhooks.port }}
        {{- end }}
      {{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" }}
      {{- with get $c $probe }}
      {{ $probe }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with .Values.oxigress.controller.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- if $c.containerSecurityContext }}
        {{- toYaml $c.containerSecurityContext | nindent 8 }}
        {{- else }}
        {{- include "oxigress.securityContext" (list $c.image list) | nindent 8 }}
        {{- end }}
      volumeMounts:
        - name: runtime
          mountPath: /run/oxigress
        - name: token
          mountPath: /var/run/secrets/kubernetes.io/serviceaccount
          readOnly: true
        {{- if $c.admissionWebhooks.enabled }}
        - name: webhook
          mountPath: /etc/oxigress/webhook
          readOnly: true
        {{- end }}
        {{- with $c.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    - name: nginx
      image: {{ include "oxigress.controllerImage" . | quote }}
      imagePullPolicy: {{ $c.image.pullPolicy }}
      args:
        {{- include "oxigress.arguments" (list . "nginx") | nindent 8 }}
      env:
        {{- include "oxigress.environment" . | nindent 8 }}
      ports:
        {{- range $name, $port := $c.containerPort }}
        - name: {{ $name }}
          containerPort: {{ int $port }}
          protocol: TCP
          {{- if $c.hostPort.enabled }}
          hostPort: {{ int (get $c.hostPort.ports $name | default $port) }}
          {{- end }}
        {{- end }}
        {{- range $protocol, $ports := dict "tcp" .Values.tcp "udp" .Values.udp }}
        {{- range $port, $_ := $ports }}
        - name: {{ include "oxigress.streamPort" (list $ $port $protocol) }}
          containerPort: {{ int $port }}
          protocol: {{ upper $protocol }}
          {{- if $c.hostPort.enabled }}
          hostPort: {{ int $port }}
          {{- end }}
        {{- end }}
        {{- end }}
      {{- $lifecycle := deepCopy $c.lifecycle }}
      {{- if include "oxigress.waitsForShutdown" . }}
      {{- $_ := unset $lifecycle "preStop" }}
      {{- end }}
      {{- with $lifecycle }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $c.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $c.resizePolicy }}
      resizePolicy:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- if $c.containerSecurityContext }}
        {{- toYaml $c.containerSecurityContext | nindent 8 }}
        {{- else }}
        {{- include "oxigress.securityContext" (list $c.image (list "NET_BIND_SERVICE")) | nindent 8 }}
        {{- end }}
      volumeMounts:
        - name: runtime
          mountPath: /run/oxigress
        - name: temp
          mountPath: /run/oxigress-temp
        {{- with $c.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $c.extraContainers }}
    {{- tpl (toYaml .) $ | nindent 4 }}
    {{- end }}
  volumes:
    # Sockets and the journal, in memory: a restarted nginx container serves from it at once.
    - name: runtime
      emptyDir:
        medium: Memory
        sizeLimit: {{ .Values.oxigress.runtimeDir.sizeLimit }}
    # What nginx buffers for clients. In memory too: the kubelet evicts a pod whose folder on a disk is over its sizeLimit.
    - name: temp
      emptyDir:
        medium: Memory
        sizeLimit: {{ .Values.oxigress.tempDir.sizeLimit }}
    - name: token
      projected:
        sources:
          - serviceAccountToken:
              path: token
              expirationSeconds: 3607
          - configMap:
              name: kube-root-ca.crt
              items:
                - key: ca.crt
                  path: ca.crt
          - downwardAPI:
              items:
                - path: namespace
                  fieldRef:
                    fieldPath: metadata.namespace
    {{- if $c.admissionWebhooks.enabled }}
    - name: webhook
      secret:
        secretName: {{ include "oxigress.webhook" . }}
    {{- end }}
    {{- with $c.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with get $c $key }}
  {{ $key }}:
    {{- tpl (toYaml .) $ | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* At most 15 characters: a list of the chart, the port and its protocol. */}}
{{- define "oxigress.streamPort" -}}
{{- $prefix := (index . 0).Values.portNamePrefix -}}
{{- with $prefix }}{{ . }}-{{ end }}{{ index . 1 }}-{{ index . 2 -}}
{{- end -}}

{{/* Whether the preStop hook is the program of ingress-nginx's image, which this image does not have and does not need. */}}
{{- define "oxigress.waitsForShutdown" -}}
{{- $exec := (.Values.controller.lifecycle.preStop | default dict).exec | default dict -}}
{{- if has "/wait-shutdown" ($exec.command | default list) -}}true{{- end -}}
{{- end -}}
