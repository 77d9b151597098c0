"""Amazon RDS and Aurora: descriptions of instances, parameter groups, metrics, certificates, imports from S3."""
