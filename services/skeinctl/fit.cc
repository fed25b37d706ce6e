#include "services/skeinctl/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/file.h"
#include "services/base/flags.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

struct Flags {
  std::string samples;
  std::string model = "unknown";
  std::string device = "unknown";
  std::string date = Today();
};

absl::Status ParseFlags(int argc, char** argv, Flags* flags) {
  FlagSet set(
      "skeinctl fit SAMPLES.csv: the latency profile that fits measured samples best, on standard\n"
      "output; how far it is from each of them, on standard error. The file has a header line "
      "with\n"
      "the columns sp, history_tokens, chunk_tokens and seconds.");
  set.Positional(&flags->samples, "SAMPLES.csv");
  set.String(&flags->model, "model", "the model that was measured");
  set.String(&flags->device, "device", "the device it ran on");
  set.String(&flags->date, "date", "when it was measured");
  return set.Parse(argc, argv, EnvironmentMap());
}

absl::Status Fit(const Flags& flags) {
  const auto text = ReadFile(flags.samples);
  if (!text.ok()) return text.status();
  const auto samples = ParseSamples(*text);
  if (!samples.ok()) return samples.status();
  const auto fit = scheduler::FitLatency(*samples);
  if (!fit.ok()) return absl::InvalidArgumentError(absl::StrCat("fit: ", fit.status().message()));
  const auto latency = scheduler::LatencyModel::Make(fit->sizes);
  if (!latency.ok()) return latency.status();
  std::fputs(ResidualTable(*fit).c_str(), stderr);
  const std::string json =
      ProfileJson({flags.model, flags.device, flags.date, *latency, std::nullopt});
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

std::string ResidualTable(const scheduler::LatencyFit& fit) {
  std::string text = absl::StrFormat("%6s %14s %12s %12s %12s %9s\n", "sp", "history_tokens",
                                     "chunk_tokens", "seconds", "fitted", "error");
  struct Errors {
    int count = 0;
    double sum = 0;
    double largest = 0;
  };
  std::map<int, Errors> by_size;
  for (const scheduler::SampleResidual& residual : fit.residuals) {
    const scheduler::LatencySample& sample = residual.sample;
    absl::StrAppendFormat(&text, "%6d %14d %12d %12.6f %12.6f %+8.2f%%\n", sample.sp,
                          sample.history_tokens, sample.chunk_tokens, sample.seconds,
                          residual.predicted_s, 100 * residual.Relative());
    Errors& errors = by_size[sample.sp];
    ++errors.count;
    errors.sum += std::abs(residual.Relative());
    errors.largest = std::max(errors.largest, std::abs(residual.Relative()));
  }
  for (const auto& [sp, errors] : by_size) {
    absl::StrAppendFormat(&text, "sp %d: %d samples, mean error %.2f%%, largest %.2f%%\n", sp,
                          errors.count, 100 * errors.sum / errors.count, 100 * errors.largest);
  }
  return text;
}

int FitCommand(int argc, char** argv) {
  Flags flags;
  const absl::Status parsed = ParseFlags(argc, argv, &flags);
  if (absl::IsCancelled(parsed)) {
    std::fputs(std::string(parsed.message()).c_str(), stdout);
    return 0;
  }
  const absl::Status done = parsed.ok() ? Fit(flags) : parsed;
  if (done.ok()) return 0;
  std::fprintf(stderr, "skeinctl: %s\n", std::string(done.message()).c_str());
  return 2;
}

}  // namespace skein::services
