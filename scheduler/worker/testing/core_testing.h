// What the tests of both WorkerCores share.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "scheduler/base/messages.h"
#include "scheduler/worker/membership/membership_events.h"

namespace skein::scheduler::testing {

inline WorkerIdentity Identity(Role role, int64_t total_blocks) {
  WorkerIdentity identity;
  identity.role = role;
  identity.model = "m";
  identity.endpoint = "w:1";
  identity.incarnation = {9};
  identity.shape = {
      {.num_layers = 2, .kv_heads = 1, .head_dim = 4, .block_tokens = 4, .dtype = DType::kF32},
      "h"};
  identity.total_blocks = total_blocks;
  return identity;
}

inline std::shared_ptr<RequestSpec> Spec(uint64_t serial, int64_t prompt_tokens = 6,
                                         int64_t max_tokens = 4) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = {7, serial};
  spec->model = "m";
  spec->prompt.assign(prompt_tokens, 1);
  spec->max_tokens = max_tokens;
  return spec;
}

// The effects of one kind.
template <class T, class Effects>
std::vector<T> Of(const Effects& effects) {
  std::vector<T> found;
  for (const auto& effect : effects) {
    if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
  }
  return found;
}

}  // namespace skein::scheduler::testing
