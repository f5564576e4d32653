"""Plans of whole models, as a service has them.

Face: `ModelPlan`, `PlanVariant`, `PlanTotals`, `PlanEvent`, `PartEnded`, `PlanEnded`.
"""
