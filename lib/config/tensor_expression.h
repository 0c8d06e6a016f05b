// Expressions over tensors in the config: the function of a Lambda as a layer, loss or metric. They
// are not evaluated with the others but become operations of the graph (nn/tensor_program.h).
//
//   Lambda: {inputs: [a, b], function: "=a * exp(-b)"}
//   loss: =mean(square(y_true - y_pred), axis=-1)
#pragma once

#include <string>
#include <string_view>

#include "config/arithmetic.h"
#include "config/object.h"
#include "config/yaml.h"

namespace meshtrain {

inline constexpr std::string_view kLambda = "Lambda";

// Whether the text is an expression with `y_true` or `y_pred`, which stands for a Lambda.
bool is_loss_expression(std::string_view text);

// Makes Lambdas of the expressions among the losses and metrics of a config that name outputs of
// its model; a name that `vars` has, too, does not count.
void make_lambdas_of_outputs(YamlNode& root);
// Whether the function of a Lambda names `name`.
bool names_tensor(const ConfigObject& lambda, std::string_view name);

// The arguments of the Lambda that `node`, an entry of a map or a map with `type: Lambda`, is; made
// a map where it is the function alone. nullptr for anything else.
YamlNode* lambda_arguments(YamlNode& node);
// Makes `node`, a text, {Lambda: {function: text}}.
void make_lambda(YamlNode& node);

// The names in `function` that neither an input has nor `y_true`, `y_pred`, x, x1, ... Throws
// ExprError.
std::vector<std::string> free_names(const YamlNode& arguments);

// Without the `=` at the beginning.
std::string_view expression_text(std::string_view function);
// A number, boolean or list of these, as the argument `constants` holds it. Throws ExprError.
ExprValue constant_of_text(std::string_view text);
// The place of character `offset` of the expression within its value.
SourceLoc expression_place(const SourceLoc& value, std::string_view function, size_t offset);

}  // namespace meshtrain
