#include "services/router/model.h"

#include <gtest/gtest.h>

namespace skein::services {
namespace {

constexpr char kFledgling[] = "deploy/models/fledgling";

TEST(ModelsTest, GenerationConfigGivesTheDefaults) {
  const auto models = Models::Load({std::string("f=") + kFledgling});
  ASSERT_TRUE(models.ok()) << models.status();
  const ServedModel* model = models->Find("f");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model, models->Only());
  EXPECT_EQ(model->max_new_tokens, 512);
  EXPECT_EQ(model->defaults.temperature, 1);  // do_sample is not looked at
  EXPECT_EQ(model->vocab_size, 2048);
}

TEST(ModelsTest, EveryProblemIsReported) {
  const auto models = Models::Load({"/nowhere", std::string("=") + kFledgling});
  ASSERT_FALSE(models.ok());
  const std::string message(models.status().message());
  EXPECT_NE(message.find("--model: '/nowhere': "), std::string::npos) << message;
  EXPECT_NE(message.find("the name is empty"), std::string::npos) << message;
}

}  // namespace
}  // namespace skein::services
