// Latency samples from CSV.
#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

using scheduler::LatencySample;

constexpr std::array<const char*, 4> kColumns = {"sp", "history_tokens", "chunk_tokens", "seconds"};
using Places = std::array<int, kColumns.size()>;  // -1: no such column

std::vector<absl::string_view> Cells(absl::string_view line) {
  std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  for (absl::string_view& cell : cells) cell = absl::StripAsciiWhitespace(cell);
  return cells;
}

template <typename... Text>
absl::Status Wrong(int line, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat("samples: line ", line, ": ", text...));
}

absl::StatusOr<Places> ParseHeader(int line, const std::vector<absl::string_view>& cells) {
  Places places;
  for (size_t i = 0; i < kColumns.size(); ++i) {
    const auto it = std::find(cells.begin(), cells.end(), kColumns[i]);
    places[i] = it == cells.end() ? -1 : static_cast<int>(it - cells.begin());
    if (places[i] < 0 && i != 1) {
      return Wrong(line, "the header has no column '", kColumns[i],
                   "'; it needs sp, chunk_tokens and seconds, and may have history_tokens");
    }
  }
  return places;
}

absl::StatusOr<LatencySample> ParseLine(int line, const std::vector<absl::string_view>& cells,
                                        const Places& places) {
  LatencySample sample;
  const auto cell = [&](size_t column) {
    const auto place = static_cast<size_t>(places[column]);
    return place < cells.size() ? cells[place] : absl::string_view();
  };
  const auto wrong = [&](size_t column) {
    return Wrong(line, kColumns[column], ": '", cell(column),
                 column == 3 ? "' is not a number of seconds" : "' is not a whole number");
  };
  if (!absl::SimpleAtoi(cell(0), &sample.sp)) return wrong(0);
  if (places[1] >= 0 && !absl::SimpleAtoi(cell(1), &sample.history_tokens)) return wrong(1);
  if (!absl::SimpleAtoi(cell(2), &sample.chunk_tokens)) return wrong(2);
  if (!absl::SimpleAtod(cell(3), &sample.seconds)) return wrong(3);
  return sample;
}

}  // namespace

absl::StatusOr<std::vector<LatencySample>> ParseSamples(std::string_view csv) {
  std::vector<LatencySample> samples;
  std::optional<Places> places;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(csv.data(), csv.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const std::vector<absl::string_view> cells = Cells(line);
    if (!places.has_value()) {
      const auto header = ParseHeader(number, cells);
      if (!header.ok()) return header.status();
      places = *header;
      continue;
    }
    const auto sample = ParseLine(number, cells, *places);
    if (!sample.ok()) return sample.status();
    samples.push_back(*sample);
  }
  if (samples.empty()) return absl::InvalidArgumentError("samples: the file has no samples");
  return samples;
}

}  // namespace skein::services
