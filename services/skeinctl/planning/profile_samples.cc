#include "services/skeinctl/planning/profile_samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace skein::services {

std::vector<int64_t> PromptLengths(int64_t tokens_min, int64_t tokens_max, int count) {
  std::vector<int64_t> lengths;
  const double ratio = static_cast<double>(tokens_max) / static_cast<double>(tokens_min);
  lengths.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    lengths.push_back(std::llround(static_cast<double>(tokens_min) *
                                   std::pow(ratio, static_cast<double>(i) / (count - 1))));
  }
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

void ProfileSamples::Add(int64_t prompt_tokens, const std::vector<ChunkTime>& chunks) {
  Tally& tally = lengths_[prompt_tokens];
  int64_t tokens = 0;
  int64_t in_shape = 0;
  for (const ChunkTime& chunk : chunks) {
    tokens += chunk.chunk_tokens;
    if (chunk.shape == shape_) in_shape += chunk.chunk_tokens;
  }
  if (tokens > prompt_tokens || in_shape != prompt_tokens) {
    ++(tokens > prompt_tokens ? tally.disturbed : tally.otherwise);
    return;
  }
  ++tally.used;
  for (const ChunkTime& chunk : chunks) {
    samples_.push_back({static_cast<int>(shape_.instances), chunk.history_tokens,
                        chunk.chunk_tokens, chunk.seconds});
  }
}

std::string ProfileSamples::Unused() const {
  const auto list = [this](auto count) {
    std::vector<std::string> lengths;
    for (const auto& [length, tally] : lengths_) {
      const int n = count(tally);
      if (n > 0) lengths.push_back(absl::StrFormat("%d (%d times)", length, n));
    }
    return lengths;
  };
  const std::string name =
      shape_.instances == 1 ? std::string() : absl::StrCat(NameOf(shape_), ": ");
  std::string text;
  const auto add = [&](const char* why, const std::vector<std::string>& lengths) {
    if (lengths.empty()) return;
    absl::StrAppend(&text, name, "not used, ", why, ": prompts of ", absl::StrJoin(lengths, ", "),
                    " tokens\n");
  };
  add(name.empty() ? "computed by two or more instances" : "computed in another shape",
      list([](const Tally& t) { return t.otherwise; }));
  add("other requests ran meanwhile", list([](const Tally& t) { return t.disturbed; }));
  std::vector<std::string> missing;
  for (const auto& [length, tally] : lengths_) {
    if (tally.used == 0) missing.push_back(absl::StrCat(length));
  }
  if (!missing.empty()) {
    absl::StrAppendFormat(&text, "%snot measured: %d of %d lengths: %s tokens\n", name,
                          missing.size(), lengths_.size(), absl::StrJoin(missing, ", "));
  }
  return text;
}

bool ProfileSamples::complete() const {
  return std::all_of(lengths_.begin(), lengths_.end(),
                     [](const auto& entry) { return entry.second.used > 0; });
}

std::vector<scheduler::LatencySample> Medians(
    const std::vector<scheduler::LatencySample>& samples) {
  std::map<std::tuple<int, int64_t, int64_t>, std::vector<double>> seconds;
  for (const scheduler::LatencySample& s : samples) {
    seconds[{s.sp, s.history_tokens, s.chunk_tokens}].push_back(s.seconds);
  }
  std::vector<scheduler::LatencySample> medians;
  for (auto& [key, times] : seconds) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    medians.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), *middle});
  }
  return medians;
}

std::string SamplesCsv(const std::vector<scheduler::LatencySample>& samples) {
  std::string text = "sp,history_tokens,chunk_tokens,seconds\n";
  for (const scheduler::LatencySample& s : samples) {
    absl::StrAppendFormat(&text, "%d,%d,%d,%.9g\n", s.sp, s.history_tokens, s.chunk_tokens,
                          s.seconds);
  }
  return text;
}

}  // namespace skein::services
