{{/*
The flags of both roles, as a map: rights follow from them as well, so that extraArgs are honoured there too.
*/}}
{{- define "oxigress.flags" -}}
{{- $c := .Values.controller -}}
{{- $name := include "oxigress.fullname" . -}}
{{- $namespace := include "oxigress.namespace" . -}}
{{- $flags := dict
    "runtime-dir" "/run/oxigress/pod"
    "temp-dir" "/run/oxigress-temp"
    "zone-size" .Values.oxigress.zoneSize
    "worker-processes" (toString .Values.oxigress.workerProcesses)
    "journal" .Values.oxigress.journal
    "host-ownership" .Values.oxigress.hostOwnership
    "http-port" (int $c.containerPort.http)
    "https-port" (int $c.containerPort.https)
    "healthz-port" (int $c.metrics.port)
    "health-check-path" $c.healthCheckPath
    "ingress-class" $c.ingressClass
    "controller-class" $c.ingressClassResource.controllerValue
    "configmap" (printf "%s/%s" ($c.configMapNamespace | default "$(POD_NAMESPACE)") (include "oxigress.controller" .))
    "election-id" ($c.electionID | default (printf "%s-leader" $name))
    "enable-metrics" $c.metrics.enabled
    "shutdown-grace-period" (int .Values.oxigress.shutdownGracePeriodSeconds)
-}}
{{- if ne .Values.oxigress.zoneSizeMax "auto" }}{{ $_ := set $flags "zone-size-max" .Values.oxigress.zoneSizeMax }}{{ end -}}
{{- if ne (toString .Values.oxigress.namespaceBytesMax) "0" }}{{ $_ := set $flags "namespace-bytes-max" (toString .Values.oxigress.namespaceBytesMax) }}{{ end -}}
{{- if .Values.oxigress.gatewayAPI }}{{ $_ := set $flags "gateway-api" true }}{{ end -}}
{{- with $c.healthCheckHost }}{{ $_ := set $flags "healthz-host" . }}{{ end -}}
{{- with $c.electionTTL }}{{ $_ := set $flags "election-ttl" . }}{{ end -}}
{{- if $c.disableLeaderElection }}{{ $_ := set $flags "disable-leader-election" true }}{{ end -}}
{{- if $c.watchIngressWithoutClass }}{{ $_ := set $flags "watch-ingress-without-class" true }}{{ end -}}
{{- if $c.ingressClassByName }}{{ $_ := set $flags "ingress-class-by-name" true }}{{ end -}}
{{- if $c.enableTopologyAwareRouting }}{{ $_ := set $flags "enable-topology-aware-routing" true }}{{ end -}}
{{- if $c.reportNodeInternalIp }}{{ $_ := set $flags "report-node-internal-ip-address" true }}{{ end -}}
{{- if and $c.publishService.enabled (or $c.publishService.pathOverride $c.service.enabled) -}}
{{- $service := $c.service.external.enabled | ternary (include "oxigress.controller" .) (printf "%s-internal" (include "oxigress.controller" .)) -}}
{{- $_ := set $flags "publish-service" ($c.publishService.pathOverride | default (printf "$(POD_NAMESPACE)/%s" $service)) -}}
{{- end -}}
{{- if $c.scope.enabled -}}
{{- $_ := set $flags "watch-namespace" ($c.scope.namespace | default "$(POD_NAMESPACE)") -}}
{{- else if $c.scope.namespaceSelector -}}
{{- $_ := set $flags "watch-namespace-selector" $c.scope.namespaceSelector -}}
{{- end -}}
{{- if .Values.tcp -}}
{{- $_ := set $flags "tcp-services-configmap" (printf "%s/%s-tcp" ($c.tcp.configMapNamespace | default "$(POD_NAMESPACE)") $name) -}}
{{- end -}}
{{- if .Values.udp -}}
{{- $_ := set $flags "udp-services-configmap" (printf "%s/%s-udp" ($c.udp.configMapNamespace | default "$(POD_NAMESPACE)") $name) -}}
{{- end -}}
{{- if .Values.defaultBackend.enabled -}}
{{- $_ := set $flags "default-backend-service" (printf "$(POD_NAMESPACE)/%s" (include "oxigress.defaultBackend" .)) -}}
{{- end -}}
{{- if $c.admissionWebhooks.enabled -}}
{{- $_ := set $flags "validating-webhook" (printf ":%d" (int $c.admissionWebhooks.port)) -}}
{{- $_ := set $flags "validating-webhook-certificate" "/etc/oxigress/webhook/tls.crt" -}}
{{- $_ := set $flags "validating-webhook-key" "/etc/oxigress/webhook/tls.key" -}}
{{- end -}}
{{- range $flag, $value := $c.extraArgs -}}
{{- $_ := set $flags $flag $value -}}
{{- end -}}
{{- toYaml $flags -}}
{{- end -}}

{{/* The command line of one role: a list of the chart and the role. */}}
{{- define "oxigress.arguments" -}}
- {{ index . 1 }}
{{- range $flag, $value := include "oxigress.flags" (index . 0) | fromYaml }}
{{- if eq (toString $value) "" }}
- --{{ $flag }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%v" $flag (eq $value (floor $value) | ternary (int64 $value) $value) | quote }}
{{- else }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
{{- end -}}
