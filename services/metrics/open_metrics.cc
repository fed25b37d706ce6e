#include "services/metrics/open_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace skein::services {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::string_view kTotal = "_total";
constexpr std::string_view kMediaType = "application/openmetrics-text";

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return error == std::errc() ? std::string(text, end) : "NaN";
}

// Bounds are written as floats: "1.0", "0.0001", "100000.0", "1e+06", as the format has them
// ("Canonical Numbers") and vLLM's dashboards name them.
std::string Bound(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value)) return Number(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e6);
  char text[64];
  const auto [end, error] =
      std::to_chars(text, text + sizeof text, value,
                    fixed ? std::chars_format::fixed : std::chars_format::scientific);
  if (error != std::errc()) return Number(value);
  const std::string_view digits(text, static_cast<size_t>(end - text));
  const bool whole = digits.find_first_of(".e") == std::string_view::npos;
  return std::string(digits) + (whole ? ".0" : "");
}

// With the time of an exemplar: seconds, to the millisecond.
std::string Seconds(double unix_s) {
  const auto ms = static_cast<int64_t>(unix_s * 1e3);
  const std::string rest = std::to_string(ms % 1000);
  return std::to_string(ms / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

void AddLabel(const std::string& name, const std::string& value, std::string* out) {
  if (!out->empty()) *out += ',';
  *out += name + "=\"" + Escaped(value) + "\"";
}

// "name{labels} value\n"; `bound` empty: there is no le.
void AddSample(const std::string& name, const ClientMetric& metric, const std::string& bound,
               const std::string& value, const Exemplar& exemplar, std::string* out) {
  std::string labels;
  for (const ClientMetric::Label& label : metric.label) {
    AddLabel(label.name, label.value, &labels);
  }
  if (!bound.empty()) AddLabel("le", bound, &labels);
  *out += name;
  if (!labels.empty()) *out += "{" + labels + "}";
  *out += " " + value;
  if (!exemplar.trace_id.empty()) {
    *out += " # {trace_id=\"" + exemplar.trace_id + "\"} " + Number(exemplar.value) + " " +
            Seconds(exemplar.unix_s);
  }
  *out += "\n";
}

void AddHistogram(const std::string& name, const ClientMetric& metric,
                  const std::vector<Exemplar>& exemplars, std::string* out) {
  for (size_t i = 0; i < metric.histogram.bucket.size(); ++i) {
    const ClientMetric::Bucket& bucket = metric.histogram.bucket[i];
    AddSample(name + "_bucket", metric, Bound(bucket.upper_bound),
              std::to_string(bucket.cumulative_count),
              i < exemplars.size() ? exemplars[i] : Exemplar(), out);
  }
  AddSample(name + "_count", metric, "", std::to_string(metric.histogram.sample_count), {}, out);
  AddSample(name + "_sum", metric, "", Number(metric.histogram.sample_sum), {}, out);
}

const char* TypeOf(const MetricFamily& family) {
  switch (family.type) {
    case MetricType::Counter:
      return family.name.ends_with(kTotal) ? "counter" : "unknown";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Histogram:
      return "histogram";
    default:
      return "unknown";
  }
}

Exemplars::Labels LabelsOf(const ClientMetric& metric) {
  Exemplars::Labels labels;
  for (const ClientMetric::Label& label : metric.label) labels.emplace(label.name, label.value);
  return labels;
}

void AddFamily(const MetricFamily& family, const Exemplars& exemplars, std::string* out) {
  const std::string type = TypeOf(family);
  std::string name = family.name;
  if (type == "counter") name.resize(name.size() - kTotal.size());
  *out += "# TYPE " + name + " " + type + "\n";
  if (!family.help.empty()) {
    *out += "# HELP " + name + " " + Escaped(family.help) + "\n";
  }
  for (const ClientMetric& metric : family.metric) {
    switch (family.type) {
      case MetricType::Counter:
        AddSample(family.name, metric, "", Number(metric.counter.value), {}, out);
        break;
      case MetricType::Gauge:
        AddSample(family.name, metric, "", Number(metric.gauge.value), {}, out);
        break;
      case MetricType::Histogram:
        AddHistogram(family.name, metric, exemplars.Latest(family.name, LabelsOf(metric)), out);
        break;
      default:
        AddSample(family.name, metric, "", Number(metric.untyped.value), {}, out);
    }
  }
}

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Of a media range with its parameters; 1 if it has none.
double Quality(std::string_view range) {
  for (size_t at; (at = range.find(';')) != std::string_view::npos;) {
    range.remove_prefix(at + 1);
    const std::string_view parameter = Trimmed(range.substr(0, range.find(';')));
    if (parameter.substr(0, 2) != "q=") continue;
    return std::strtod(std::string(parameter.substr(2)).c_str(), nullptr);
  }
  return 1;
}

}  // namespace

bool AcceptsOpenMetrics(std::string_view accept) {
  double ours = 0, plain = 0;
  while (!accept.empty()) {
    const size_t comma = std::min(accept.find(','), accept.size());
    const std::string_view range = Trimmed(accept.substr(0, comma));
    accept.remove_prefix(std::min(comma + 1, accept.size()));
    const std::string_view type = Trimmed(range.substr(0, range.find(';')));
    if (type == kMediaType) ours = std::max(ours, Quality(range));
    if (type == "text/plain") plain = std::max(plain, Quality(range));
  }
  return ours > 0 && ours >= plain;
}

std::string OpenMetricsText(const std::vector<MetricFamily>& families, const Exemplars& exemplars) {
  std::string out;
  for (const MetricFamily& family : families) AddFamily(family, exemplars, &out);
  return out + "# EOF\n";
}

}  // namespace skein::services
