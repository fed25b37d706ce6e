#include "engine/checkpoint/rope_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

using nlohmann::json;

constexpr double kFactorMax = 1e6;
constexpr int64_t kPositionsMax = int64_t{1} << 30;
constexpr int64_t kExtendedMax = int64_t{1} << 28;  // as model_config.cc

void ReadLlama3(FieldReader& fields, RopeConfig* rope) {
  for (const char* field : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!fields.Has(field)) fields.Refuse(field, "required by llama3");
  }
  rope->original_max_positions =
      fields.RequireInt("original_max_position_embeddings", 1, kPositionsMax);
  rope->low_freq_factor = fields.Number("low_freq_factor", 1.0, 1e-6, kFactorMax);
  rope->high_freq_factor = fields.Number("high_freq_factor", 4.0, 1e-6, kFactorMax);
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    fields.Refuse("high_freq_factor", "must be above low_freq_factor");
  }
}

// Without an explicit factor it is the ratio of the context lengths, as in transformers; without an
// original length, max_position_embeddings is that length.
void ReadYarn(FieldReader& fields, int64_t max_positions, RopeConfig* rope) {
  rope->original_max_positions =
      fields.Int("original_max_position_embeddings", max_positions, 1, kPositionsMax);
  if (!fields.Has("factor")) {
    if (!fields.Has("original_max_position_embeddings"))
      fields.Refuse("factor", "required by yarn");
    rope->factor = static_cast<double>(max_positions) / rope->original_max_positions;
  }
  // Zero means the default, as Python's `or` has it there.
  if (const double fast = fields.Number("beta_fast", 0, 0, kFactorMax); fast > 0) {
    rope->beta_fast = fast;
  }
  if (const double slow = fields.Number("beta_slow", 0, 0, kFactorMax); slow > 0) {
    rope->beta_slow = slow;
  }
  if (fields.Has("attention_factor")) {
    rope->attention_factor = fields.Number("attention_factor", 1.0, 0.0, kFactorMax);
  }
  rope->mscale = fields.Number("mscale", 0.0, 0.0, kFactorMax);
  rope->mscale_all_dim = fields.Number("mscale_all_dim", 0.0, 0.0, kFactorMax);
  rope->truncate = fields.Bool("truncate", true);
}

absl::Status ReadScaling(const json& object, const std::string& path, int64_t max_positions,
                         RopeConfig* rope) {
  FieldReader fields(object, path);
  const char* kind_field = fields.Has("rope_type") ? "rope_type" : "type";
  const std::string kind = fields.String(kind_field, "default");
  rope->theta = fields.Number("rope_theta", rope->theta, 1.0 + 1e-6, 1e12);
  if (fields.Number("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    fields.Refuse("partial_rotary_factor", "only full rotation is supported");
  }
  if (fields.Has("full_attention") || fields.Has("sliding_attention")) {
    fields.Refuse(fields.Has("full_attention") ? "full_attention" : "sliding_attention",
                  "settings per kind of layer are not supported");
  }
  if (kind == "default") return fields.status();
  rope->factor = fields.Number("factor", 1.0, 1e-6, kFactorMax);
  if (kind == "linear") {
    rope->kind = RopeKind::kLinear;
    if (!fields.Has("factor")) fields.Refuse("factor", "required by linear");
  } else if (kind == "llama3") {
    rope->kind = RopeKind::kLlama3;
    ReadLlama3(fields, rope);
  } else if (kind == "yarn") {
    rope->kind = RopeKind::kYarn;
    ReadYarn(fields, max_positions, rope);
  } else {
    fields.Refuse(kind_field, "not supported (default, linear, llama3, yarn are)");
  }
  return fields.status();
}

}  // namespace

absl::StatusOr<RopeConfig> ParseRopeConfig(const json& config, int64_t max_positions) {
  RopeConfig rope;
  FieldReader fields(config, "config.json: ");
  rope.theta = fields.Number("rope_theta", rope.theta, 1.0 + 1e-6, 1e12);
  if (fields.Number("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    fields.Refuse("partial_rotary_factor", "only full rotation is supported");
  }
  if (!fields.status().ok()) return fields.status();
  const char* holder = fields.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!fields.Has(holder)) return rope;
  const absl::Status read = ReadScaling(
      config.at(holder), std::string("config.json: ") + holder + ".", max_positions, &rope);
  if (!read.ok()) return read;
  return rope;
}

int64_t ExtendedPositions(const RopeConfig& rope, int64_t max_positions) {
  if (rope.kind != RopeKind::kYarn) return max_positions;
  const double extended =
      std::floor(rope.factor * static_cast<double>(rope.original_max_positions));
  return std::max(max_positions, static_cast<int64_t>(std::min<double>(extended, kExtendedMax)));
}

}  // namespace skein::engine
