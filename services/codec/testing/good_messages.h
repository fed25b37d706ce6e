// Messages that the codec takes, for tests that send or spoil them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/codec/codec.h"

namespace skein::services::testing {

inline v1::RequestSpec GoodSpec() {
  v1::RequestSpec spec;
  spec.mutable_id()->set_router(7);
  spec.mutable_id()->set_serial(9);
  spec.set_model("m");
  spec.set_prompt(PackTokens({1, 5, 9}));
  spec.set_max_tokens(4);
  spec.set_min_tokens(1);
  spec.add_stop_token_ids(2);
  spec.set_sampling("bytes");
  spec.set_want_prompt_logprobs(true);
  spec.set_priority(-2);
  spec.set_deadline_us(1000000);
  spec.add_names("cmpl-1");
  spec.mutable_prompt_of()->set_router(7);
  spec.mutable_prompt_of()->set_serial(8);
  spec.set_tenant("red");
  spec.set_tenant_weight(2);
  spec.set_ttft_goal_us(500'000);
  spec.set_tpot_goal_us(20'000);
  spec.set_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  return spec;
}

inline v1::RegisterRequest GoodRegistration() {
  v1::RegisterRequest r;
  r.set_role(v1::ROLE_DECODE);
  r.set_model("m");
  r.set_model_hash("abc");
  r.set_endpoint("127.0.0.1:1");
  r.set_incarnation(5);
  auto* kv = r.mutable_kv();
  kv->set_num_layers(2);
  kv->set_kv_heads(4);
  kv->set_head_dim(16);
  kv->set_block_tokens(16);
  kv->set_dtype(v1::DTYPE_BF16);
  kv->set_num_blocks(100);
  kv->set_format(3);
  r.mutable_layout()->set_tp(1);
  r.set_block_bytes(4096);
  r.set_max_positions(2048);
  r.set_admin_endpoint("127.0.0.1:2");
  r.set_host("h");
  r.set_node("n");
  r.set_pid(12);
  r.set_version("1");
  r.set_comm_address("c\0d");
  r.set_max_batch_tokens(512);
  r.set_max_requests(64);
  r.mutable_load()->mutable_blocks()->set_total(100);
  r.mutable_load()->mutable_blocks()->set_free(90);
  r.mutable_load()->set_invariants_ok(true);
  r.set_stream(9);
  return r;
}

inline v1::AssignRequest GoodPlan() {
  v1::AssignRequest assign;
  assign.set_spec(GoodSpec().SerializeAsString());
  assign.set_epoch(3);
  assign.set_sequence(8);
  for (uint64_t instance : {4, 6}) {
    v1::PlanMember* member = assign.add_members();
    member->set_instance(instance);
    member->set_incarnation(100 + instance);
    member->set_endpoint("h:" + std::to_string(instance));
    member->set_comm_address("a" + std::to_string(instance));
  }
  for (const std::vector<uint32_t>& members : {std::vector<uint32_t>{1}, {1, 0}}) {
    v1::PlanChunk* chunk = assign.add_chunks();
    chunk->set_tokens(16 * members.size());
    chunk->mutable_members()->Add(members.begin(), members.end());
    chunk->set_estimated_us(1000 * members.size());
    if (members.size() == 2) chunk->set_tp(2);
  }
  assign.set_from_chunk(1);
  assign.mutable_placed()->set_epoch(3);
  assign.mutable_placed()->set_decode_instance(9);
  assign.mutable_placed()->set_decode_endpoint("h:9");
  return assign;
}

inline v1::TokenBatch GoodBatch() {
  v1::TokenBatch batch;
  v1::TokenBatch::Sequence* first = batch.add_sequences();
  *first->mutable_id() = GoodSpec().id();
  first->set_epoch(3);
  for (const int32_t token : {7, 0, 9}) first->add_tokens(token);
  for (const char* sampled : {"a", "", "c"}) first->add_sampled(sampled);
  first->set_prompt_logprobs("scores");
  first->mutable_times()->set_queue_us(1);
  first->set_leaving(true);
  v1::TokenBatch::Sequence* second = batch.add_sequences();
  *second->mutable_id() = GoodSpec().id();
  second->set_epoch(4);
  second->set_first_index(17);
  second->add_tokens(5);
  second->mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
  second->mutable_finished()->set_output_tokens(19);
  second->mutable_finished()->set_stop_token(2);
  return batch;
}

}  // namespace skein::services::testing
