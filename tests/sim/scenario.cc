#include "tests/sim/scenario.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "proto/common.pb.h"
#include "scheduler/plan/policy.h"
#include "services/worker/engine/sampling_codec.h"
#include "tests/sim/engine_thread.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

constexpr int kVocab = 50;
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

void MakeLongFaults(Random& random, Scenario& scenario) {
  if (random.Chance(0.3)) scenario.loss_chance = 0.005;
  if (random.Chance(0.2)) scenario.break_chance = 0.001;
  if (random.Chance(0.3)) scenario.stall_chance = 0.02;
  constexpr FaultKind kKinds[] = {
      FaultKind::kCrash,      FaultKind::kCrash,      FaultKind::kSlow,
      FaultKind::kDrain,      FaultKind::kEngineHang, FaultKind::kEngineFailure,
      FaultKind::kStandstill, FaultKind::kStandstill, FaultKind::kOrchestratorCrash};
  const int workers = scenario.prefill_workers + kDecodeWorkers;
  for (int64_t i = random.Between(2, 12); i > 0; --i) {
    Fault fault{.kind = kKinds[random.Between(0, 8)],
                .worker = static_cast<int>(random.Between(0, workers - 1)),
                .at_us = random.Between(200 * kMillisecondUs, scenario.heals_us),
                .lasts_us = random.Between(10, 6000) * kMillisecondUs};
    if (fault.kind == FaultKind::kStandstill && random.Chance(0.3)) fault.worker = kTheOrchestrator;
    scenario.faults.push_back(fault);
  }
}

void MakeFaults(Random& random, Scenario& scenario) {
  if (random.Chance(0.4)) {
    scenario.spike_chance = 0.05;
    scenario.spike_us = random.Between(5, 150) * kMillisecondUs;
  }
  if (random.Chance(0.5)) scenario.loss_chance = random.Chance(0.5) ? 0.01 : 0.08;
  if (random.Chance(0.3)) scenario.break_chance = 0.005;
  if (random.Chance(0.3)) scenario.stall_chance = 0.02;
  const int64_t faults = random.Between(0, 4);
  for (int64_t i = 0; i < faults; ++i) {
    Fault fault;
    const int64_t kind = random.Between(0, 9);
    fault.kind = kind < 4   ? FaultKind::kCrash
                 : kind < 6 ? FaultKind::kSlow
                 : kind < 8 ? FaultKind::kDrain
                 : kind < 9 ? FaultKind::kEngineFailure
                            : FaultKind::kOrchestratorCrash;
    fault.worker =
        static_cast<int>(random.Between(0, scenario.prefill_workers + kDecodeWorkers - 1));
    fault.at_us = random.Between(50 * kMillisecondUs, scenario.heals_us);
    fault.lasts_us = random.Between(1, 600) * kMillisecondUs;
    fault.returns = random.Chance(0.8);
    scenario.faults.push_back(fault);
  }
}

// Equation 1 with what more instances bring drawn at random, now and then nothing.
scheduler::LatencyModel MakeLatency(Random& random, int instances) {
  const auto real = [&random](double low, double high) {
    return low + (high - low) * static_cast<double>(random.Between(0, 1000)) * 1e-3;
  };
  const double token_s = real(5e-5, 6e-4);
  const double attention_s = token_s * real(0, 0.03);
  std::map<int, scheduler::SpCoefficients> sizes;
  double share = 1;
  for (int sp = 1; sp <= instances; sp *= 2) {
    sizes[sp] = {.a_s = real(0, 1e-3) * sp,
                 .b_s_per_token = token_s * share,
                 .c_s_per_token2 = attention_s * share,
                 .d_s_per_token2 = attention_s * share * 0.5};
    share *= real(0.45, 0.9);
  }
  return *scheduler::LatencyModel::Make(sizes);
}

std::shared_ptr<const scheduler::PlanningConfig> MakePlanning(Random& random, int instances) {
  constexpr const char* kPolicies[] = {"random", "random",  "random", "tetris",
                                       "single", "rolling", "greedy", "fixed2"};
  const auto policy = scheduler::Policy::Parse(kPolicies[random.Between(0, 7)]);
  auto planning = std::make_shared<scheduler::PlanningConfig>(
      scheduler::PlanningConfig{.latency = MakeLatency(random, instances), .policy = *policy});
  planning->tables.improvement_rates =
      scheduler::ImprovementRateTable::Constant(static_cast<double>(random.Between(0, 30)) * 0.01);
  planning->node_size = static_cast<int>(random.Between(1, 8));
  return planning;
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

void MakeDeaths(Random& random, Scenario& scenario) {
  const TimeUs every = random.Between(80, 500) * kMillisecondUs;
  for (TimeUs at = 100 * kMillisecondUs; at < scenario.heals_us; at += every) {
    const bool prefill = random.Chance(0.8);
    scenario.faults.push_back(
        {.kind = FaultKind::kCrash,
         .worker = static_cast<int>(prefill ? random.Between(0, scenario.prefill_workers - 1)
                                            : scenario.prefill_workers +
                                                  random.Between(0, kDecodeWorkers - 1)),
         .at_us = at + random.Between(0, every),
         .lasts_us = random.Between(1, 400) * kMillisecondUs});
  }
}

// Of its own randomness, too. Up to three leases of an instance, one of a handoff and more.
void MakeStandstills(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 19);
  if (random.Chance(0.5)) return;
  for (int64_t i = random.Between(1, 4); i > 0; --i) {
    const bool orchestrator = random.Chance(0.4);
    const int workers = scenario.prefill_workers + kDecodeWorkers;
    scenario.faults.push_back({.kind = FaultKind::kStandstill,
                               .worker = orchestrator
                                             ? kTheOrchestrator
                                             : static_cast<int>(random.Between(0, workers - 1)),
                               .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
                               .lasts_us = random.Between(20, 900) * kMillisecondUs});
  }
}

// Of its own randomness, too.
void MakeHangs(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 31);
  if (random.Chance(0.7)) return;
  const int workers = scenario.prefill_workers + kDecodeWorkers;
  scenario.faults.push_back({.kind = FaultKind::kEngineHang,
                             .worker = static_cast<int>(random.Between(0, workers - 1)),
                             .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us)});
}

// Of its own randomness: what the seeds above did not know of.
void MakeMoreFaults(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 43);
  if (random.Chance(0.4)) scenario.duplicate_chance = random.Chance(0.5) ? 0.02 : 0.2;
  if (random.Chance(0.3)) scenario.refusal_chance = 0.01;
  const int64_t workers = scenario.prefill_workers + kDecodeWorkers;
  for (int64_t i = random.Chance(0.4) ? random.Between(1, 3) : 0; i > 0; --i) {
    Fault fault{.kind = FaultKind::kCut,
                .worker = static_cast<int>(random.Between(kTheRouter, workers - 1)),
                .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
                .lasts_us = random.Between(20, 900) * scenario.time_scale * kMillisecondUs,
                .to = static_cast<int>(random.Between(kTheRouter, workers - 1))};
    scenario.faults.push_back(fault);
  }
  if (random.Chance(0.15)) {
    scenario.faults.push_back({.kind = FaultKind::kRouterCrash,
                               .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
                               .lasts_us = random.Between(1, 300) * kMillisecondUs});
  }
}

// Of its own randomness. Far less than the time that requests have without asking for one.
void MakeClockJump(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 71);
  if (random.Chance(0.7)) return;
  const int64_t workers = scenario.prefill_workers + kDecodeWorkers;
  scenario.faults.push_back(
      {.kind = FaultKind::kClockJump,
       .worker = static_cast<int>(random.Between(kTheRouter, workers - 1)),
       .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
       .lasts_us = random.Between(100, 5000) * scenario.time_scale * kMillisecondUs});
}

// Of its own randomness: half of the seeds have limits and leases of their own.
void MakeLimits(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 47);
  if (random.Chance(0.5)) return;
  scenario.router_streams = random.Between(6, 40);
  scenario.router_queue = random.Between(4, 16);
  scenario.prefill_requests = random.Between(4, 16);
  scenario.decode_requests = random.Between(3, 12);
  scenario.begin_ahead = random.Between(1, 5);
  scenario.chunk_tokens = random.Between(4, 16);
  scenario.decode_batch = random.Between(1, 8);
  scenario.instance_lease_ms = random.Between(250, 900);
  scenario.writing_lease_ms = random.Between(150, 500);
  scenario.attach_lease_ms = random.Between(300, 600);
}

// Of its own randomness: what else a seed decides is the same in both modes.
void MakeStaging(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 13);
  scenario.staging_buffers = static_cast<int>(random.Between(1, 3));
  scenario.staging_slots = static_cast<int32_t>(random.Between(1, 8));
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

// Of its own randomness.
void MakeSamplings(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 41);
  for (std::vector<ClientPlan>* clients : {&scenario.clients, &scenario.probes}) {
    for (ClientPlan& client : *clients) {
      auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
      spec->sampling = MakeSampling(random);
      client.spec = spec;
    }
  }
}

constexpr char kNanFrom[] = "nan from ";

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

// Of its own randomness.
void MakePoison(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 29);
  if (random.Chance(0.3)) return;
  for (ClientPlan& client : scenario.clients) {
    if (client.impossible || client.unknown_model || !random.Chance(0.15)) continue;
    client.stops_after = -1;
    Poison(random, client);
  }
}

}  // namespace

Scenario MakeSpScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 7);
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 4 == 0;
  scenario.delay_max_us = random.Between(60, 3000);
  scenario.compute_at_end = random.Chance(0.5);
  scenario.step_us = random.Between(200, 2000);
  scenario.prefill_workers = static_cast<int>(random.Between(3, 6));
  scenario.prefill_blocks = static_cast<int>(random.Between(16, 28));
  scenario.router_streams = 40;
  scenario.planning = MakePlanning(random, scenario.prefill_workers);
  MakeSpWorkload(random, scenario);
  MakeSamplings(seed, scenario);
  MakePoison(seed, scenario);
  MakeLimits(seed, scenario);
  if (seed / 4 % 2 == 1) MakeStaging(seed, scenario);
  if (scenario.faultless) return scenario;
  MakeFaults(random, scenario);
  MakeStandstills(seed, scenario);
  MakeHangs(seed, scenario);
  scenario.word_loss_chance = 0.25;
  if (random.Chance(0.6)) MakeDeaths(random, scenario);
  if (random.Chance(0.4)) scenario.group_break_chance = 0.02;
  MakeMoreFaults(seed, scenario);
  MakeClockJump(seed, scenario);
  return scenario;
}

Scenario MakeScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 1);
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 5 == 0;
  scenario.delay_max_us = random.Between(60, 3000);
  scenario.compute_at_end = random.Chance(0.5);
  scenario.step_us = random.Between(200, 3000);
  MakeWorkload(random, scenario);
  MakeSamplings(seed, scenario);
  MakePoison(seed, scenario);
  MakeLimits(seed, scenario);
  if (seed / 5 % 2 == 1) MakeStaging(seed, scenario);
  if (scenario.faultless) return scenario;
  MakeFaults(random, scenario);
  MakeStandstills(seed, scenario);
  MakeHangs(seed, scenario);
  MakeMoreFaults(seed, scenario);
  MakeClockJump(seed, scenario);
  return scenario;
}

Scenario MakeLongScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 53);
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 8 == 0;
  scenario.time_scale = 10;
  scenario.delay_max_us = random.Between(60, 3000);
  scenario.compute_at_end = random.Chance(0.5);
  scenario.step_us = random.Between(30, 120) * kMillisecondUs;
  scenario.slowness = random.Between(2, 4);
  scenario.decode_blocks = 200;
  MakeLongWorkload(random, scenario);
  MakeSamplings(seed, scenario);
  MakePoison(seed, scenario);
  MakeLimits(seed, scenario);
  if (seed / 8 % 2 == 1) MakeStaging(seed, scenario);
  if (scenario.faultless) return scenario;
  MakeLongFaults(random, scenario);
  MakeMoreFaults(seed, scenario);
  MakeClockJump(seed, scenario);
  return scenario;
}

Scenario MakeSlowWritersScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 61);
  Scenario scenario;
  scenario.seed = seed;
  scenario.delay_max_us = random.Between(60, 1000);
  scenario.compute_at_end = random.Chance(0.5);
  scenario.step_us = random.Between(200, 1000);
  scenario.stall_chance = 0.3;
  scenario.router_streams = 40;
  scenario.router_queue = 40;
  MakeSpWorkload(random, scenario);
  MakeSamplings(seed, scenario);
  for (ClientPlan& client : scenario.clients) {
    if (random.Chance(0.4)) {
      client.leaves_us = client.arrives_us + random.Between(5, 100) * kMillisecondUs;
    }
  }
  for (int64_t i = random.Between(1, 3); i > 0; --i) {
    scenario.faults.push_back(
        {.kind = FaultKind::kStandstill,
         .worker = static_cast<int>(random.Between(0, scenario.prefill_workers - 1)),
         .at_us = random.Between(100 * kMillisecondUs, scenario.heals_us),
         .lasts_us = random.Between(250, 900) * kMillisecondUs});
  }
  return scenario;
}

namespace {

void GiveRoom(Scenario* scenario) {
  std::erase_if(scenario->clients, [](const ClientPlan& client) {
    return client.impossible || client.unknown_model || client.poison != absl::StatusCode::kOk;
  });
  for (ClientPlan& client : scenario->clients) {
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    spec->deadline_us = 0;
    client.spec = spec;
    client.leaves_us = scheduler::kNever;
  }
  const Scenario defaults;
  ++scenario->prefill_workers;
  scenario->prefill_blocks = 60;
  scenario->decode_blocks = 400;
  scenario->router_streams = 100;
  scenario->prefill_requests = scenario->decode_requests = 100;
  scenario->attach_lease_ms = scenario->writing_lease_ms = 500;
  scenario->instance_lease_ms = defaults.instance_lease_ms;
  scenario->faultless = false;
  scenario->no_excuse = true;
}

}  // namespace

void LeaveNoExcuse(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 59);
  constexpr FaultKind kKinds[] = {FaultKind::kCrash,
                                  FaultKind::kCrash,
                                  FaultKind::kSlow,
                                  FaultKind::kDrain,
                                  FaultKind::kEngineHang,
                                  FaultKind::kEngineFailure,
                                  FaultKind::kStandstill,
                                  FaultKind::kOrchestratorCrash,
                                  FaultKind::kOrchestratorCrash};
  Fault fault{.kind = kKinds[random.Between(0, 8)],
              .worker = static_cast<int>(random.Between(0, scenario->prefill_workers - 1)),
              .at_us = random.Between(100 * kMillisecondUs, scenario->heals_us),
              .lasts_us = random.Between(20, 600) * kMillisecondUs};
  if (fault.kind == FaultKind::kStandstill && random.Chance(0.7)) fault.worker = kTheOrchestrator;
  scenario->faults = {fault};
  scenario->loses_generation = random.Chance(0.5);
}

void BreakLinks(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 67);
  scenario->link_break_chance = static_cast<double>(random.Between(2, 20)) * 1e-3;
  scenario->loses_generation = random.Chance(0.5);
  for (TimeUs at = 0; (at += random.Between(50, 400) * kMillisecondUs) < scenario->heals_us;) {
    scenario->faults.push_back({.kind = FaultKind::kOrchestratorCrash,
                                .at_us = at,
                                .lasts_us = random.Between(1, 10) * kMillisecondUs});
  }
}

void JumpClocks(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 73);
  scenario->faults.push_back({.kind = FaultKind::kClockJump,
                              .worker = kTheOrchestrator,
                              .at_us = random.Between(100 * kMillisecondUs, scenario->heals_us),
                              .lasts_us = random.Between(1, 5) * scheduler::kSecondUs});
}

void LimitRequests(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 37);
  scenario->prefill_requests = random.Between(1, 2);
  scenario->decode_requests = random.Between(1, 3);
  scenario->router_streams = 100;
}

void LetClientsFailEngines(int64_t clients, Scenario* scenario) {
  for (ClientPlan& client : scenario->clients) {
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    if (client.impossible || client.unknown_model) continue;
    if (client.poison != absl::StatusCode::kOk) continue;
    client.leaves_us = scheduler::kNever;
    spec->deadline_us = 0;
    if (clients-- > 0) spec->names = {kFailsEngines};
    client.spec = spec;
  }
}

void OrderDrains(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 23);
  const int workers = scenario->prefill_workers + kDecodeWorkers;
  TimeUs at = 50 * kMillisecondUs;
  while (at < scenario->heals_us) {
    const TimeUs lasts = random.Between(20, 400) * kMillisecondUs;
    scenario->faults.push_back({.kind = FaultKind::kOrderedDrain,
                                .worker = static_cast<int>(random.Between(0, workers - 1)),
                                .at_us = at,
                                .lasts_us = lasts});
    at += lasts + random.Between(0, 100) * kMillisecondUs;
  }
  scenario->faults.push_back({.kind = FaultKind::kOrderedDrain,
                              .worker = kTheRouter,
                              .at_us = random.Between(100 * kMillisecondUs, scenario->heals_us / 2),
                              .lasts_us = random.Between(20, 300) * kMillisecondUs});
}

engine::EmulatedOptions EngineOptions(scheduler::Role role) {
  return {.kv = {.num_layers = 2,
                 .kv_heads = 1,
                 .head_dim = 4,
                 .block_tokens = 4,
                 .dtype = engine::DType::kF32,
                 .num_blocks = role == scheduler::Role::kPrefill ? 28 : 40},
          .vocab_size = kVocab,
          .max_positions = 512};
}

Expected ExpectedAnswer(const scheduler::RequestSpec& spec) {
  Expected expected;
  const engine::EmulatedOptions options = EngineOptions(scheduler::Role::kDecode);
  const engine::SamplingParams sampling = services::SamplingFrom(spec);
  const auto& stops = spec.stop_token_ids;
  for (const engine::SampledToken& sampled :
       engine::EmulatedAnswer(options, spec.prompt, spec.max_tokens, sampling)) {
    const bool stop = std::count(stops.begin(), stops.end(), sampled.token) > 0;
    if (stop && static_cast<int64_t>(expected.tokens.size()) >= spec.min_tokens) {
      expected.stop_token = sampled.token;
      break;
    }
    expected.tokens.push_back(sampled.token);
    expected.payloads.push_back(services::PayloadOf(sampled));
  }
  if (spec.want_prompt_logprobs) {
    expected.prompt_logprobs =
        PromptPayload(engine::EmulatedPromptLogprobs(options, spec.prompt, sampling.top_logprobs));
  }
  return expected;
}

int64_t NanFrom(const scheduler::RequestSpec& spec) {
  const size_t digits = sizeof(kNanFrom) - 1;
  if (spec.names.empty() || spec.names[0].compare(0, digits, kNanFrom) != 0) return INT64_MAX;
  return std::stoll(spec.names[0].substr(digits));
}

}  // namespace skein::sim
