#include "services/skeinctl/planning/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/file.h"
#include "services/codec/profile_json.h"
#include "services/skeinctl/command.h"

namespace skein::services {
namespace {

absl::Status Fit(const FitFlags& flags) {
  const auto text = ReadFile(flags.samples);
  if (!text.ok()) return text.status();
  const auto samples = ParseSamples(*text);
  if (!samples.ok()) return samples.status();
  const auto fit = scheduler::FitLatency(*samples);
  if (!fit.ok()) return absl::InvalidArgumentError(absl::StrCat("fit: ", fit.status().message()));
  const auto latency = scheduler::LatencyModel::Make(fit->sizes);
  if (!latency.ok()) return latency.status();
  const std::string residuals =
      flags.format == "json" ? ResidualJsonLines(*fit) : ResidualTable(*fit);
  std::fputs(residuals.c_str(), stderr);
  const std::string json =
      ProfileJson({flags.model, flags.device, Today(), *latency, std::nullopt});
  std::fputs(json.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
  return text;
}

std::string ResidualTable(const scheduler::LatencyFit& fit, const char* size) {
  const int width = std::max(6, static_cast<int>(std::strlen(size)));
  std::string text = absl::StrFormat("%*s %14s %12s %12s %12s %9s\n", width, size, "history_tokens",
                                     "chunk_tokens", "seconds", "fitted", "error");
  struct Errors {
    int count = 0;
    double sum = 0;
    double largest = 0;
  };
  std::map<int, Errors> by_size;
  for (const scheduler::SampleResidual& residual : fit.residuals) {
    const scheduler::LatencySample& sample = residual.sample;
    absl::StrAppendFormat(&text, "%*d %14d %12d %12.6f %12.6f %+8.2f%%\n", width, sample.sp,
                          sample.history_tokens, sample.chunk_tokens, sample.seconds,
                          residual.predicted_s, 100 * residual.Relative());
    Errors& errors = by_size[sample.sp];
    ++errors.count;
    errors.sum += std::abs(residual.Relative());
    errors.largest = std::max(errors.largest, std::abs(residual.Relative()));
  }
  for (const auto& [sp, errors] : by_size) {
    absl::StrAppendFormat(&text, "%s %d: %d samples, mean error %.2f%%, largest %.2f%%\n", size, sp,
                          errors.count, 100 * errors.sum / errors.count, 100 * errors.largest);
  }
  return text;
}

std::string ResidualJsonLines(const scheduler::LatencyFit& fit) {
  std::string text;
  for (const scheduler::SampleResidual& residual : fit.residuals) {
    const scheduler::LatencySample& sample = residual.sample;
    absl::StrAppendFormat(
        &text,
        R"({"sp": %d, "history_tokens": %d, "chunk_tokens": %d, "seconds": %.9g, )"
        R"("fitted_s": %.9g, "relative_error": %.9g})"
        "\n",
        sample.sp, sample.history_tokens, sample.chunk_tokens, sample.seconds, residual.predicted_s,
        residual.Relative());
  }
  return text;
}

void FitFlags::Register(FlagSet* set) {
  set->About(
      "Fit a latency profile to measured samples.\n"
      "\n"
      "Writes the profile to standard output and its error at each sample to standard error.");
  set->Positional(&samples, "SAMPLES.csv",
                  "A file with a header line and the columns sp, history_tokens, chunk_tokens and "
                  "seconds.");
  set->String(&model, "model", "Name of the measured model.").Value("NAME");
  set->String(&device, "device", "Device of the measurement.").Value("NAME");
  set->String(&format, "format", "Format of the errors: a table, or one JSON object per line.")
      .OneOf({"table", "json"})
      .Value("FORMAT");
}

int RunFit(const FitFlags& flags) {
  const absl::Status done = Fit(flags);
  return done.ok() ? kDone : PrintErrors("skeinctl fit", done, kUsage);
}

}  // namespace skein::services
