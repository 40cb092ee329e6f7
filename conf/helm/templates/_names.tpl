{{- define "oxigress.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "oxigress.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* The release's name where that says which product it is, as ingress-nginx's chart has it. */}}
{{- define "oxigress.fullname" -}}
{{- $name := include "oxigress.name" . -}}
{{- $both := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $both | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "oxigress.controller" -}}
{{- printf "%s-%s" (include "oxigress.fullname" .) .Values.controller.name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "oxigress.defaultBackend" -}}
{{- printf "%s-%s" (include "oxigress.fullname" .) .Values.defaultBackend.name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "oxigress.webhook" -}}
{{- printf "%s-%s" (include "oxigress.fullname" .) .Values.controller.admissionWebhooks.name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "oxigress.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "oxigress.fullname" .) "default") -}}
{{- end -}}

{{/* A list of the chart and its component: what chooses its pods. */}}
{{- define "oxigress.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ include "oxigress.name" $top }}
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The same list: the labels of an object. */}}
{{- define "oxigress.labels" -}}
{{- $top := index . 0 -}}
{{ include "oxigress.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ include "oxigress.name" $top }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_" }}
{{- with $top.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A list of the chart and an `image`. */}}
{{- define "oxigress.image" -}}
{{- $top := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := $image.registry | default $top.Values.global.image.registry -}}
{{- $repository := $image.repository | default (empty $registry | ternary $image.image (printf "%s/%s" $registry $image.image)) -}}
{{- $repository }}:{{ $image.tag | default $top.Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* The controller's `image`, as JSON. One of ingress-nginx cannot run this chart's pod: where the values name it, its name, tag and digest
are this chart's. */}}
{{- define "oxigress.controllerImage" -}}
{{- $image := deepCopy .Values.controller.image -}}
{{- if include "oxigress.isTheirImage" . -}}
{{- $registry := $image.registry | default .Values.global.image.registry -}}
{{- $_ := set $image "registry" (eq $registry "registry.k8s.io" | ternary "" $registry) -}}
{{- $_ := set $image "repository" (empty $image.registry | ternary "oxigress" "") -}}
{{- $_ := set $image "image" "oxigress" -}}
{{- $_ := set $image "tag" "" -}}
{{- $_ := set $image "digest" "" -}}
{{- end -}}
{{- include "oxigress.image" (list . $image) -}}
{{- end -}}

{{- define "oxigress.isTheirImage" -}}
{{- with .Values.controller.image -}}
{{- if regexMatch "(^|/)(ingress-nginx/controller|nginx-ingress-controller)(-chroot)?$" (.repository | default .image) -}}true{{- end -}}
{{- end -}}
{{- end -}}
