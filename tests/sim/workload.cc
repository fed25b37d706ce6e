#include "tests/sim/workload.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/common.pb.h"
#include "tests/sim/answers.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

constexpr int64_t kLogprobsTokens = 64;  // with logprobs a prompt must fit one prefill worker

ClientPlan MakeClient(Random& random, uint64_t serial, TimeUs arrives_us,
                      bool long_prompts = false) {
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {kRouter, serial};
  spec->model = "m";
  int64_t prompt_tokens = random.Chance(0.2) ? random.Between(24, 60) : random.Between(1, 20);
  if (long_prompts && random.Chance(0.7)) prompt_tokens = random.Between(20, 100);
  for (int64_t i = 0; i < prompt_tokens; ++i) {
    spec->prompt.push_back(static_cast<int32_t>(random.Between(0, kVocab - 1)));
  }
  spec->max_tokens = random.Chance(0.1) ? random.Between(0, 1) : random.Between(2, 30);
  for (int64_t i = random.Between(0, 2); i > 0; --i) {
    spec->stop_token_ids.push_back(static_cast<int32_t>(random.Between(0, kVocab - 1)));
  }
  if (random.Chance(0.3)) {
    spec->min_tokens = std::min(spec->max_tokens, random.Between(1, 10));
  }
  spec->want_prompt_logprobs = random.Chance(0.2) && prompt_tokens <= kLogprobsTokens;
  return {.spec = spec, .arrives_us = arrives_us};
}

void MakeDifficult(Random& random, ClientPlan& client) {
  auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
  if (random.Chance(0.1)) {
    client.leaves_us = client.arrives_us + random.Between(0, 60) * kMillisecondUs;
  } else if (random.Chance(0.1)) {
    client.stops_after = random.Between(0, 10);
  } else if (random.Chance(0.05)) {
    spec->deadline_us = random.Between(1, 80) * kMillisecondUs;
  } else if (random.Chance(0.03)) {
    client.impossible = true;
    spec->max_tokens = 1000;
  } else if (random.Chance(0.03)) {
    client.unknown_model = true;
    spec->model = "unknown";
  }
  client.spec = spec;
}

// Most are not greedy, some have penalties, biases or logprobs.
std::string MakeSampling(Random& random) {
  const auto real = [&random](double low, double high) {
    return static_cast<float>(low +
                              (high - low) * static_cast<double>(random.Between(0, 1000)) * 1e-3);
  };
  v1::SamplingParams sampling;
  if (random.Chance(0.75)) sampling.set_temperature(real(0.1, 2));
  if (random.Chance(0.3)) sampling.set_top_k(static_cast<int32_t>(random.Between(1, kVocab)));
  sampling.set_top_p(random.Chance(0.3) ? real(0.1, 1) : 1);
  if (random.Chance(0.2)) sampling.set_min_p(real(0, 1));
  sampling.set_repetition_penalty(random.Chance(0.3) ? real(0.5, 2) : 1);
  if (random.Chance(0.3)) sampling.set_presence_penalty(real(-2, 2));
  if (random.Chance(0.3)) sampling.set_frequency_penalty(real(-2, 2));
  for (int64_t i = random.Chance(0.3) ? random.Between(1, 4) : 0; i > 0; --i) {
    v1::LogitBias* bias = sampling.add_logit_bias();
    bias->set_token(static_cast<int32_t>(random.Between(0, kVocab - 1)));
    bias->set_bias(real(-5, 5));
  }
  sampling.set_seed(static_cast<uint64_t>(random.Between(0, INT64_MAX - 1)));
  sampling.set_top_logprobs(random.Chance(0.3) ? static_cast<int32_t>(random.Between(0, 5)) : -1);
  return sampling.SerializeAsString();
}

bool IsOrdinary(const ClientPlan& client) {
  return !client.impossible && !client.unknown_model && client.spec->max_tokens > 0;
}

// A further choice of the answer whose first one is `first`: the same but for seed and serial.
void MakeChoice(const ClientPlan& first, ClientPlan& client) {
  auto spec = std::make_shared<scheduler::RequestSpec>(*first.spec);
  spec->id = client.spec->id;
  spec->prompt_of = first.spec->id;
  v1::SamplingParams sampling;
  sampling.ParseFromString(spec->sampling);
  sampling.set_seed(sampling.seed() + 1);
  spec->sampling = sampling.SerializeAsString();
  client.spec = spec;
  client.arrives_us = first.arrives_us;
}

// Some requests become further choices of the one before them.
void MakeChoices(uint64_t seed, std::vector<ClientPlan>* clients) {
  Random random(seed * 0x9e3779b97f4a7c15u + 53);
  size_t first = 0;
  for (size_t i = 1; i < clients->size(); ++i) {
    ClientPlan& client = (*clients)[i];
    if (IsOrdinary((*clients)[first]) && IsOrdinary(client) && random.Chance(0.25)) {
      MakeChoice((*clients)[first], client);
    } else {
      first = i;
    }
  }
}

// What an engine makes of it: refused (an id outside the vocabulary), run in vain (no token is left
// to sample), or NaN at some token.
void Poison(Random& random, ClientPlan& client) {
  auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
  spec->stop_token_ids.clear();
  spec->min_tokens = 0;
  spec->max_tokens = random.Between(5, 20);
  client.poison = absl::StatusCode::kInvalidArgument;
  const int64_t kind = random.Between(0, 2);
  if (kind == 0) {
    client.poison = absl::StatusCode::kInternal;
    client.tokens_before_poison = random.Between(0, 4);
    spec->names = {kNanFrom + std::to_string(client.tokens_before_poison)};
  } else if (kind == 1) {
    spec->prompt[static_cast<size_t>(random.Between(0, scheduler::PromptTokens(*spec) - 1))] =
        kVocab;
  } else {
    for (int32_t id = 0; id < kVocab; ++id) spec->stop_token_ids.push_back(id);
    spec->min_tokens = random.Between(1, 5);
  }
  client.spec = spec;
}

}  // namespace

void MakeWorkload(Random& random, Scenario& scenario) {
  const int64_t clients = random.Between(6, 30);
  const bool bursts = random.Chance(0.5);
  TimeUs when = 100 * kMillisecondUs;
  for (int64_t i = 1; i <= clients; ++i) {
    if (!bursts || random.Chance(0.2)) when += random.Between(0, 60) * kMillisecondUs;
    scenario.clients.push_back(MakeClient(random, static_cast<uint64_t>(i), when));
    MakeDifficult(random, scenario.clients.back());
  }
  scenario.heals_us = std::max<TimeUs>(when + 200 * kMillisecondUs, 800 * kMillisecondUs);
  for (uint64_t i = 1; i <= 3; ++i) {
    scenario.probes.push_back(MakeClient(random, 1000 + i, 0));
  }
}

void MakeLongWorkload(Random& random, Scenario& scenario) {
  const TimeUs lasts = random.Between(20, 30) * scheduler::kSecondUs;
  TimeUs when = 200 * kMillisecondUs;
  for (uint64_t serial = 1; when < lasts; ++serial) {
    ClientPlan client = MakeClient(random, serial, when);
    MakeDifficult(random, client);
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    if (!client.impossible) spec->max_tokens = random.Between(20, 120);
    spec->min_tokens = random.Between(0, spec->max_tokens);
    spec->deadline_us *= scenario.time_scale;
    client.spec = spec;
    scenario.clients.push_back(std::move(client));
    when += random.Between(100, 1500) * kMillisecondUs;
  }
  scenario.heals_us = lasts;
  for (uint64_t i = 1; i <= 3; ++i) scenario.probes.push_back(MakeClient(random, 1000 + i, 0));
}

void MakeFormationWorkload(Random& random, Scenario& scenario) {
  const TimeUs lasts = random.Between(1600, 3000) * kMillisecondUs;
  uint64_t serial = 0;
  for (TimeUs when = 100 * kMillisecondUs; when < lasts;) {
    const bool burst = random.Chance(0.4);
    const TimeUs until = when + random.Between(100, 600) * kMillisecondUs;
    while (when < std::min(until, lasts)) {
      ClientPlan client = MakeClient(random, ++serial, when);
      MakeDifficult(random, client);
      if (!client.impossible && random.Chance(0.6)) {
        auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
        spec->max_tokens = random.Between(10, 80);
        if (random.Chance(0.7)) spec->stop_token_ids.clear();
        if (random.Chance(0.2)) spec->priority = static_cast<int32_t>(random.Between(-1, 2));
        client.spec = spec;
      }
      scenario.clients.push_back(std::move(client));
      when += (burst ? random.Between(1, 25) : random.Between(50, 300)) * kMillisecondUs;
    }
  }
  scenario.heals_us = lasts + 300 * kMillisecondUs;
  for (uint64_t i = 1; i <= 3; ++i) scenario.probes.push_back(MakeClient(random, 1000 + i, 0));
}

void MakeShortWorkload(Random& random, Scenario& scenario) {
  constexpr TimeUs kLastsUs = 4 * scheduler::kSecondUs;
  TimeUs when = 100 * kMillisecondUs;
  for (uint64_t serial = 1; when < kLastsUs; ++serial) {
    ClientPlan client = MakeClient(random, serial, when);
    MakeDifficult(random, client);
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    const auto prompt = static_cast<size_t>(random.Between(1, 8));
    if (spec->prompt.size() > prompt) spec->prompt.resize(prompt);
    if (!client.impossible) spec->max_tokens = random.Between(1, 4);
    spec->min_tokens = std::min(spec->min_tokens, spec->max_tokens);
    client.spec = spec;
    scenario.clients.push_back(std::move(client));
    when += random.Between(500, 5000);
  }
  scenario.heals_us = kLastsUs;
  for (uint64_t i = 1; i <= 3; ++i) scenario.probes.push_back(MakeClient(random, 1'000'000 + i, 0));
}

void MakeSteadyWorkload(Random& random, Scenario& scenario) {
  const TimeUs lasts = random.Between(1600, 2400) * kMillisecondUs;
  uint64_t serial = 0;
  for (TimeUs when = 200 * kMillisecondUs; when < lasts;) {
    ClientPlan client = MakeClient(random, ++serial, when, /*long_prompts=*/true);
    MakeDifficult(random, client);
    scenario.clients.push_back(std::move(client));
    when += random.Between(1, 10) * kMillisecondUs;
  }
  scenario.heals_us = lasts + 200 * kMillisecondUs;
  for (uint64_t i = 1; i <= 3; ++i) scenario.probes.push_back(MakeClient(random, 1000 + i, 0));
}

void MakeSpWorkload(Random& random, Scenario& scenario) {
  const int64_t clients = random.Between(15, 60);
  TimeUs when = 100 * kMillisecondUs;
  for (int64_t i = 1; i <= clients; ++i) {
    if (random.Chance(0.7)) when += random.Between(0, 40) * kMillisecondUs;
    ClientPlan client = MakeClient(random, static_cast<uint64_t>(i), when, true);
    if (random.Chance(0.2)) {
      client.leaves_us = when + random.Between(0, 150) * kMillisecondUs;
    } else {
      MakeDifficult(random, client);
    }
    scenario.clients.push_back(std::move(client));
  }
  scenario.heals_us = when + 200 * kMillisecondUs;
  for (uint64_t i = 1; i <= 3; ++i) {
    scenario.probes.push_back(MakeClient(random, 1000 + i, 0, true));
  }
}

void MakeSamplings(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 41);
  for (std::vector<ClientPlan>* clients : {&scenario.clients, &scenario.probes}) {
    for (ClientPlan& client : *clients) {
      auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
      spec->sampling = MakeSampling(random);
      client.spec = spec;
    }
  }
  MakeChoices(seed, &scenario.clients);
}

void MakePoison(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 29);
  if (random.Chance(0.3)) return;
  for (ClientPlan& client : scenario.clients) {
    if (client.impossible || client.unknown_model || !random.Chance(0.15)) continue;
    client.stops_after = -1;
    Poison(random, client);
  }
}

}  // namespace skein::sim
