#include "services/skeinctl/status.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

v1::StatusResponse Example() {
  v1::StatusResponse status;
  status.set_invariants("ok");
  for (int i = 1; i <= 2; ++i) {
    v1::InstanceStatus* instance = status.add_instances();
    instance->set_instance(static_cast<uint64_t>(i));
    instance->mutable_registration()->set_role(i == 1 ? v1::ROLE_PREFILL : v1::ROLE_DECODE);
    instance->mutable_registration()->set_model("m");
    instance->mutable_registration()->set_endpoint("127.0.0.1:" + std::to_string(1000 * i));
    instance->mutable_load()->set_invariants_ok(true);
    instance->mutable_load()->set_running(3);
    auto* blocks = instance->mutable_load()->mutable_blocks();
    blocks->set_free(7);
    blocks->set_held(3);
    blocks->set_total(10);
  }
  return status;
}

TEST(Status, TableHasOneAlignedRowAnInstance) {
  const std::string table = StatusTable(Example());
  EXPECT_NE(table.find("prefill"), std::string::npos) << table;
  EXPECT_NE(table.find("7/3/0/10"), std::string::npos) << table;
  EXPECT_NE(table.find("2 instances"), std::string::npos) << table;
}

TEST(Status, JsonIsOneObjectWithEveryInstance) {
  const auto json = nlohmann::json::parse(StatusJson(Example()));
  ASSERT_EQ(json["instances"].size(), 2u);
  EXPECT_EQ(json["instances"][1]["role"], "decode");
  EXPECT_EQ(json["instances"][0]["blocks"]["held"], 3);
}

}  // namespace
}  // namespace skein::services
